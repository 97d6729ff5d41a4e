//! DCRAG on everyday dialogues: how many facts a response may use, and what each stage adds. The
//! generator is the same for all: the configuration's.

use turnstream_engine::config::{Config, Snapshot};
use turnstream_operators::decision::DecisionForm;
use turnstream_operators::fact_retrieval::FactRetrievalForm;
use turnstream_operators::gate::GateForm;
use turnstream_operators::prompted::Think;
use turnstream_operators::stage_form::StageForm;
use turnstream_sources::knowledge;

use super::replayed::{ReplayError, ReplayLog};
use super::{Comparison, Curves, Figures, Line, Point, Sweep};
use crate::eval::bootstrap::Figure;
use crate::eval::generation::{Beside, MeasuredGeneration, measure};

/// The numbers of facts (the paper varies them from 0 to 50).
const FACTS: [u32; 9] = [0, 1, 2, 3, 5, 10, 20, 30, 50];

/// A data set with the graph that its dialogues are about.
pub struct DialogueSet {
    /// Its name.
    pub name: &'static str,
    /// The conversations.
    pub conversations: ReplayLog,
    /// The graph.
    pub snapshot: Snapshot,
}

/// Returns how many replays a data set takes.
pub fn replays(config: &Config) -> usize {
    2 * FACTS.len() + ablations(config).len()
}

/// Measures all settings on each data set; `done` is called after each replay.
///
/// # Errors
/// A replay fails.
pub fn curves(
    config: &Config,
    sets: &[DialogueSet],
    done: &dyn Fn(),
) -> Result<Curves, ReplayError> {
    let mut curves = Curves { method: "dcrag", ..Curves::default() };
    for set in sets {
        let measured = MeasuredSet::new(config, set, done)?;
        let line = |name: &str, change: Change| {
            let points = FACTS.into_iter().map(|facts| {
                let figures = measured.figures(|config| {
                    change(config);
                    limit(config, facts);
                })?;
                Ok(Point { at: f64::from(facts), figures })
            });
            let points = points.collect::<Result<Vec<_>, ReplayError>>()?;
            Ok::<_, ReplayError>(Line { name: name.to_owned(), points })
        };
        let about = format!(
            "{} conversations; the gate is open, and nothing is decided about what is found.",
            set.conversations.count
        );
        curves.sweeps.push(Sweep {
            title: format!("Selected facts, {}", set.name),
            about: about.clone(),
            setting: "facts",
            lines: vec![line(ALL_STAGES, |_| ())?, line(T_RAG, every_concept)?],
        });
        let rows = ablations(config).into_iter().map(|(name, change)| {
            Ok::<_, ReplayError>((name.to_owned(), measured.figures(change)?))
        });
        curves.comparisons.push(Comparison {
            title: format!("Stages left out, {}", set.name),
            about,
            rows: rows.collect::<Result<_, _>>()?,
        });
    }
    Ok(curves)
}

/// Lets a response use at most this many facts.
fn limit(config: &mut Config, facts: u32) {
    config.fact_selection.max_selected = facts.max(1);
    if facts == 0 {
        config.fact_retrieval.form = FactRetrievalForm::Off;
    }
}

type Change = fn(&mut Config);

const ALL_STAGES: &str = "all stages";
const T_RAG: &str = "every concept is a query (T-RAG)";

fn without_revision(config: &mut Config) {
    config.cross_revision.form = StageForm::Off;
}

fn without_topics(config: &mut Config) {
    config.topic_planning.form = StageForm::Off;
    without_revision(config);
}

fn without_selection(config: &mut Config) {
    config.fact_selection.form = StageForm::Off;
}

/// Queries alone find the facts, of which the most relevant are used.
fn by_queries(config: &mut Config) {
    without_topics(config);
    without_selection(config);
}

fn every_concept(config: &mut Config) {
    by_queries(config);
    config.query_production.max_explicit = 64;
    config.query_production.max_implicit = 0;
}

fn without_thoughts(config: &mut Config) {
    config.query_production.prompted.think = Think::Never;
    config.topic_planning.prompted.think = Think::Never;
    config.cross_revision.prompted.think = Think::Never;
}

/// Whether a stage is prompted, and so may think before it answers.
fn is_prompted(config: &Config) -> bool {
    let forms =
        [config.query_production.form, config.topic_planning.form, config.cross_revision.form];
    forms.contains(&StageForm::Prompted)
}

/// The method, without each of its parts (the paper's table 4), and the retrieval baselines.
fn ablations(config: &Config) -> Vec<(&'static str, Change)> {
    let thoughts: Option<(&str, Change)> =
        is_prompted(config).then_some(("without thoughts", without_thoughts));
    let stages: [(&str, Change); 9] = [
        (ALL_STAGES, |_| ()),
        ("without selection", without_selection),
        ("without retrieval and selection", |config| {
            config.fact_retrieval.form = FactRetrievalForm::Off;
            without_selection(config);
        }),
        ("without queries and revision", |config| {
            config.query_production.form = StageForm::Off;
            without_revision(config);
        }),
        ("without topics and revision", without_topics),
        ("without revision", without_revision),
        (T_RAG, every_concept),
        ("queries alone (QP-RAG)", by_queries),
        ("no knowledge", |config| config.gate.form = GateForm::Never),
    ];
    stages.into_iter().chain(thoughts).collect()
}

/// A data set under measurement.
struct MeasuredSet<'s> {
    config: Config,
    set: &'s DialogueSet,
    graph: turnstream_knowledge::Graph,
    log: crate::eval::generation::material::Log,
    done: &'s dyn Fn(),
}

impl<'s> MeasuredSet<'s> {
    fn new(config: &Config, set: &'s DialogueSet, done: &'s dyn Fn()) -> Result<Self, ReplayError> {
        let mut config = config.clone();
        config.knowledge.snapshot = set.snapshot.clone();
        config.gate.form = GateForm::Always;
        config.decision.form = DecisionForm::Off;
        let graph = knowledge::open(&set.snapshot.to_string())?;
        Ok(Self { config, set, graph, log: set.conversations.log()?, done })
    }

    /// Replays with a change of the configuration, and measures the responses.
    fn figures(&self, change: impl Fn(&mut Config)) -> Result<Figures, ReplayError> {
        let mut config = self.config.clone();
        change(&mut config);
        let answers = self.set.conversations.responses(&config)?;
        let places = self.log.places(&answers)?;
        let beside = Beside { log: &self.log, places: &places, graph: self.graph.view() };
        let measured = measure(&answers, Some(&beside));
        (self.done)();
        Ok(figures(&measured))
    }
}

/// Returns the figures of the paper's curves and what explains them.
fn figures(measured: &MeasuredGeneration) -> Figures {
    let named = [
        ("cdp", measured.cdp),
        ("cdf", measured.cdf),
        ("distinct_2_of_300", measured.distinct_2_of_300),
        ("grounded_words", measured.grounded_words),
        ("evidence_words", measured.evidence_words),
        ("reference_facts", measured.reference_facts),
        ("f1", measured.f1),
    ];
    let figure = |(name, value): (&'static str, Option<f64>)| {
        (name, Figure { value, interval: measured.intervals.get(name).copied() })
    };
    named.map(figure).into_iter().collect()
}
