//! Computes the judge's figures: means over the responses with a judgement, and how they were made.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::MeasuredGeneration;
use super::super::material::Answer;
use super::{Judgement, JudgementCounts, Prompts};
use crate::eval::bootstrap::{Conversations, Mean};

/// Means of judgements; `None` if no response has one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JudgedMeans {
    /// Engagement (MEEP), 0..=100.
    pub meep: Option<f64>,
    /// Informativeness, 1 to 5 scaled to 0..=100.
    pub informativeness: Option<f64>,
    /// Overall, 1 to 5 scaled to 0..=100.
    pub overall: Option<f64>,
    /// The geometric mean of Distinct-2 and CDP in percent, CDF and the three figures above.
    pub geo_mean: Option<f64>,
    /// RAGAs: the share of the selected evidence that helps.
    pub context_relevance: Option<f64>,
    /// RAGAs: the share of the response's statements that the evidence supports.
    pub faithfulness: Option<f64>,
    /// RAGAs: the similarity of the dialogue and the utterances that the response would answer.
    pub answer_relevance: Option<f64>,
    /// The geometric mean of the three RAGAs figures.
    pub ragas_geo_mean: Option<f64>,
    /// The judge and its prompts.
    pub judge: Used,
}

/// The judge, its prompts and the counts of its answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Used {
    /// The judge's name in the configuration.
    pub name: String,
    /// The answering models by their own names, with the number of answers.
    pub models: BTreeMap<String, u64>,
    /// The hash of each prompt, by its name.
    pub prompts: BTreeMap<&'static str, String>,
    /// The encoder for answer relevance.
    pub encoder: Option<String>,
    /// Judged responses.
    pub n: usize,
    /// The number of responses with each figure.
    pub n_of: BTreeMap<&'static str, usize>,
    /// Counts of questions.
    #[serde(flatten)]
    pub counts: JudgementCounts,
}

impl JudgedMeans {
    /// Computes the figures of judged responses. Their intervals are added to those of `measured`,
    /// whose Distinct-2, CDP and CDF enter the geometric mean.
    pub fn new(
        measured: &mut MeasuredGeneration,
        answers: &[&Answer],
        judged: &[Judgement],
    ) -> Self {
        let conversations =
            Conversations::new(answers.iter().map(|answer| &answer.conversation_id));
        let mut n_of = BTreeMap::new();
        let mut mean = |name, value: &dyn Fn(&Judgement) -> Option<f64>| {
            let parts: Vec<_> = judged.iter().map(|one| value(one).map(Mean::from)).collect();
            n_of.insert(name, parts.iter().flatten().count());
            let (mean, interval) = conversations.figure(&parts, Mean::value);
            measured.intervals.extend(interval.map(|interval| (name, interval)));
            mean
        };
        let meep = mean("meep", &|one| one.meep);
        let informativeness = mean("informativeness", &|one| one.informativeness);
        let overall = mean("overall", &|one| one.overall);
        let context_relevance = mean("context_relevance", &|one| one.context_relevance);
        let faithfulness = mean("faithfulness", &|one| one.faithfulness);
        let answer_relevance = mean("answer_relevance", &|one| one.answer_relevance);
        let percent = |share: Option<f64>| share.map(|share| share * 100.0);
        let (distinct, cdp) = (percent(measured.distinct_2), percent(measured.cdp));
        Self {
            meep,
            informativeness,
            overall,
            geo_mean: geometric_mean(&[
                distinct,
                cdp,
                measured.cdf,
                meep,
                informativeness,
                overall,
            ]),
            context_relevance,
            faithfulness,
            answer_relevance,
            ragas_geo_mean: geometric_mean(&[context_relevance, faithfulness, answer_relevance]),
            judge: Used { n: judged.len(), n_of, ..Used::default() },
        }
    }

    /// Adds the judge and its prompts.
    pub fn by(
        mut self,
        name: &str,
        prompts: &Prompts,
        encoder: Option<&str>,
        counts: JudgementCounts,
    ) -> Self {
        let hash = |prompt: &super::Prompt| (prompt.name, prompt.hash.clone());
        self.judge = Used {
            name: name.to_owned(),
            models: counts.models.clone(),
            prompts: prompts.all().into_iter().map(hash).collect(),
            encoder: encoder.map(str::to_owned),
            counts,
            ..self.judge
        };
        self
    }
}

/// Returns the geometric mean of figures; `None` if one is missing or negative.
fn geometric_mean(figures: &[Option<f64>]) -> Option<f64> {
    let figures: Option<Vec<f64>> = figures.iter().copied().collect();
    let figures = figures.filter(|figures| figures.iter().all(|figure| *figure >= 0.0))?;
    let logarithms: f64 = figures.iter().map(|figure| figure.ln()).sum();
    Some((logarithms / figures.len() as f64).exp())
}

#[cfg(test)]
mod tests {

    use super::super::super::tests::{answer, near};
    use super::*;

    /// The figures and GeoMean of Vanilla and of DCRAG on DailyDialog, from DCRAG's table 1.
    #[test]
    fn the_geometric_mean_is_the_papers() {
        for (figures, mean) in [
            ([57.46, 68.67, 22.77, 61.40, 59.50, 86.42], 55.23),
            ([59.70, 85.67, 41.60, 71.48, 72.92, 92.75], 68.45),
        ] {
            let found = geometric_mean(&figures.map(Some)).expect("all there");
            // The paper rounds the figures to two digits.
            assert!((found - mean).abs() < 0.01, "{found} {mean}");
        }
        assert_eq!(geometric_mean(&[Some(0.0), Some(4.0)]), Some(0.0));
        assert_eq!(geometric_mean(&[None, Some(4.0)]), None);
        assert_eq!(geometric_mean(&[Some(-0.1), Some(4.0)]), None);
    }

    #[test]
    fn means_are_over_those_that_have_a_judgement() {
        let judgement =
            |meep, faithfulness| Judgement { meep, faithfulness, ..Judgement::default() };
        let judged =
            [judgement(Some(20.0), None), judgement(Some(60.0), Some(0.5)), judgement(None, None)];
        let answers = ["a", "b", "b"].map(|conversation| answer(conversation, "1"));
        let mut measured = MeasuredGeneration::default();
        let judged = JudgedMeans::new(&mut measured, &answers.each_ref(), &judged);
        near(judged.meep.expect("two"), 40.0);
        assert_eq!((judged.faithfulness, judged.overall, judged.geo_mean), (Some(0.5), None, None));
        let n_of = &judged.judge.n_of;
        assert_eq!(
            (judged.judge.n, n_of["meep"], n_of["faithfulness"], n_of["overall"]),
            (3, 2, 1, 0)
        );
        assert_eq!(measured.intervals["meep"], [20.0, 60.0]);
        assert!(!measured.intervals.contains_key("faithfulness"), "one conversation has it");
    }
}
