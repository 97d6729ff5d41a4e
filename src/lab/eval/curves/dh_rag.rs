//! DH-RAG on long conversations: how much a history holds (N), how its rule of eviction weighs
//! relevance and recency (α), and how finely its entries are grouped.

use turnstream_operators::history::HistoryConfig;
use turnstream_operators::history::clusters::ClustersConfig;
use turnstream_operators::history::similarity::Similarity;

use super::{Curves, Figures, Line, Point, Sweep};
use crate::eval::bootstrap::{Conversations, Figure, Mean};
use crate::eval::history::Capacity;
use crate::eval::history::evidence::{self, Measure, Outcomes};
use crate::eval::history::held::{Eviction, Held, Method};
use crate::eval::history::material::{Conversation, Step};
use crate::eval::history::table::{Columns, mean_of};
use crate::eval::history::topics;

/// The held shares of a conversation's utterances.
const SHARES: [f64; 5] = [0.1, 0.25, 0.5, 0.75, 1.0];
/// The share that is held while something else is varied.
const KEPT: f64 = 0.25;
const ALPHAS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
/// The least likenesses at which an entry joins a group, and a group a category.
const GROUP_LIKENESSES: [f64; 5] = [0.2, 0.35, 0.5, 0.65, 0.8];
const CATEGORY_LIKENESSES: [f64; 5] = [0.05, 0.15, 0.3, 0.45, 0.6];
/// The number of recalled utterances at which recall is measured.
const K: usize = 10;
/// Draws of random eviction; its figures are means over them.
const DRAWS: u64 = 5;

/// The configuration that is varied.
pub struct Varied<'v> {
    /// The history's settings.
    pub config: &'v HistoryConfig,
    /// The similarity of texts.
    pub similarity: &'v Similarity,
}

impl Varied<'_> {
    fn measure(&self, share: f64, eviction: Eviction, method: Method) -> Measure {
        Measure {
            config: self.config.clone(),
            similarity: self.similarity.clone(),
            reconstruct: false,
            attending: None,
            k: vec![K],
            capacity: if share < 1.0 { Capacity::Share(share) } else { Capacity::All },
            eviction: if share < 1.0 { eviction } else { Eviction::None },
            method,
            seed: 1,
        }
    }

    fn by_rule(&self, share: f64, change: impl Fn(&mut HistoryConfig)) -> Measure {
        let mut measure = self.measure(share, Eviction::Rule, Method::All);
        change(&mut measure.config);
        measure
    }
}

/// Measures questions with gold evidence, and turns with topics; `done` is called after each
/// question and turn.
pub fn curves(
    varied: &Varied<'_>,
    (locomo, topiocqa): (Option<&[Conversation]>, Option<&[Conversation]>),
    done: &dyn Fn(),
) -> Curves {
    let mut sweeps = Vec::new();
    if let Some(conversations) = locomo {
        sweeps.extend(of_evidence(varied, conversations, done));
    }
    if let Some(conversations) = topiocqa {
        sweeps.extend(of_topics(varied, conversations, done));
    }
    Curves { method: "dh-rag", sweeps, comparisons: Vec::new() }
}

/// Weighs by relevance and recency alone (eq 12).
fn plain(config: &mut HistoryConfig) {
    config.importance_share = 0.0;
}

fn line<const N: usize>(name: &str, at: [f64; N], figures: impl Fn(f64) -> Figures) -> Line {
    let points = at.map(|at| Point { at, figures: figures(at) });
    Line { name: name.to_owned(), points: points.into() }
}

fn of_evidence(varied: &Varied<'_>, conversations: &[Conversation], done: &dyn Fn()) -> Vec<Sweep> {
    let ask = |measure: &Measure| evidence::ask(measure, conversations, done);
    let figures = |measure: &Measure| {
        let outcomes = ask(measure);
        evidence_figures(&columns(&outcomes), &outcomes.drawn())
    };
    let at_random = |share: f64| {
        let asked = (1..=DRAWS).map(|seed| {
            ask(&Measure { seed, ..varied.measure(share, Eviction::Random, Method::All) })
        });
        let draws: Vec<Outcomes> = asked.collect();
        let drawn = draws.first().map(Outcomes::drawn);
        let columns: Vec<Columns> = draws.iter().map(columns).collect();
        drawn.map_or_else(Figures::new, |drawn| evidence_figures(&mean_of(&columns), &drawn))
    };
    let set = VariedSet { name: "LoCoMo", varied, conversations };
    set.by_eviction(&figures, &at_random).into_iter().chain(set.by_clusters(&figures)).collect()
}

fn of_topics(varied: &Varied<'_>, conversations: &[Conversation], done: &dyn Fn()) -> Vec<Sweep> {
    let figures = |measure: &Measure| {
        let measured = topics::measured(&topics::ask(measure, conversations, done));
        let first = |of: &topics::TopicFigures| Figure {
            value: of.precision.get(&1).copied(),
            interval: of.intervals.get(&1).copied(),
        };
        Figures::from([
            ("same_topic_first", first(&measured.topic_precision)),
            ("same_topic_first_on_return", first(&measured.on_return)),
        ])
    };
    let at_random = |share: f64| figures(&varied.measure(share, Eviction::Random, Method::All));
    let set = VariedSet { name: "TopiOCQA", varied, conversations };
    set.by_eviction(&figures, &at_random).into_iter().chain(set.by_clusters(&figures)).collect()
}

/// A data set on which settings are varied.
struct VariedSet<'s> {
    name: &'static str,
    varied: &'s Varied<'s>,
    conversations: &'s [Conversation],
}

impl VariedSet<'_> {
    fn sweep(&self, title: &str, setting: &'static str, lines: Vec<Line>) -> Sweep {
        let Self { name, conversations, .. } = self;
        let title = format!("{title}, {name}");
        let about = format!("{} conversations of {name}.", conversations.len());
        Sweep { title, about, setting, lines }
    }

    /// Varies how much is held, and α with a quarter held.
    fn by_eviction(
        &self,
        figures: &dyn Fn(&Measure) -> Figures,
        at_random: &dyn Fn(f64) -> Figures,
    ) -> [Sweep; 2] {
        let varied = self.varied;
        let rule =
            |share, change: &dyn Fn(&mut HistoryConfig)| figures(&varied.by_rule(share, change));
        let latest = |share| figures(&varied.measure(share, Eviction::Recency, Method::All));
        let held = vec![
            line("the rule", SHARES, |share| rule(share, &|_| ())),
            line("the paper's weight", SHARES, |share| rule(share, &plain)),
            line("the latest", SHARES, latest),
            line("at random", SHARES, at_random),
        ];
        let random = at_random(KEPT);
        let by_alpha = vec![
            line("the rule", ALPHAS, |alpha| rule(KEPT, &|config| config.alpha = alpha)),
            line("the paper's weight", ALPHAS, |alpha| {
                rule(KEPT, &|config| {
                    plain(config);
                    config.alpha = alpha;
                })
            }),
            line("at random", ALPHAS, |_| random.clone()),
        ];
        [
            self.sweep("How much is held (N)", "share of the utterances held", held),
            self.sweep("The share of relevance (α), a quarter held", "alpha", by_alpha),
        ]
    }

    /// Varies what makes clusters, as the engine's hierarchy finds and as all of it does, everything
    /// held. The numbers of clusters are means over conversations.
    fn by_clusters(&self, figures: &dyn Fn(&Measure) -> Figures) -> [Sweep; 2] {
        let lines = |at: [f64; 5], change: fn(&mut ClustersConfig, f64)| {
            let by = |method: Method| {
                line(method.name(), at, |least| {
                    let mut measure = self.varied.measure(1.0, Eviction::None, method);
                    change(&mut measure.config.clusters, least);
                    let counted = counts(&measure, self.conversations);
                    figures(&measure).into_iter().chain(counted).collect()
                })
            };
            vec![by(Method::Hierarchy), by(Method::All)]
        };
        let groups = lines(GROUP_LIKENESSES, |config, least| config.group_likeness = least);
        let categories =
            lines(CATEGORY_LIKENESSES, |config, least| config.category_likeness = least);
        [
            self.sweep(
                "Fewer and larger groups, or more and smaller",
                "least likeness of a group",
                groups,
            ),
            self.sweep(
                "Fewer and larger categories, or more and smaller",
                "least likeness of a category",
                categories,
            ),
        ]
    }
}

/// Returns how many groups and categories a conversation has at its end, in the mean.
fn counts(measure: &Measure, conversations: &[Conversation]) -> Figures {
    let of = |conversation: &Conversation| {
        let keeping = measure.keeping(conversation);
        let mut held = Held::new(&keeping);
        for step in &conversation.steps {
            if let Step::Said(said) = step {
                held.hear(said);
            }
        }
        let categories = held.clusters().categories();
        let groups: usize = categories.values().map(|category| category.groups().count()).sum();
        [groups, categories.len()].map(|count| Some(Mean::from(count as f64)))
    };
    let counts: Vec<_> = conversations.iter().map(of).collect();
    let drawn = Conversations::new(0..conversations.len());
    let mean = |which: usize| -> Figure {
        let parts: Vec<_> = counts.iter().map(|counts| counts[which]).collect();
        drawn.figure(&parts, Mean::value).into()
    };
    Figures::from([("groups", mean(0)), ("categories", mean(1))])
}

/// Returns survival and recall by question.
fn columns(outcomes: &Outcomes) -> Columns {
    vec![outcomes.figures_of(None), outcomes.figures_of(Some(0))]
}

fn evidence_figures(columns: &Columns, drawn: &Conversations) -> Figures {
    let figure = |values: &Vec<f64>| -> Figure {
        let parts: Vec<_> = values.iter().map(|value| Some(Mean::from(*value))).collect();
        drawn.figure(&parts, Mean::value).into()
    };
    ["survival", "recall_at_10"].into_iter().zip(columns.iter().map(figure)).collect()
}
