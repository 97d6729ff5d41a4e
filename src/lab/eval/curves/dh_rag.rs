//! DH-RAG on long conversations: how much a history holds (N), how its rule of eviction weighs
//! relevance and recency (α), and how finely its entries are grouped.

use turnstream_operators::history::HistoryConfig;
use turnstream_operators::history::clusters::ClustersConfig;
use turnstream_operators::history::similarity::Similarity;

use super::{Curves, Figures, Line, Point, Sweep};
use crate::eval::bootstrap::{Conversations, Figure, Mean};
use crate::eval::history::Capacity;
use crate::eval::history::evidence::{self, Measure, Outcomes};
use crate::eval::history::held::{Eviction, Method};
use crate::eval::history::material::Conversation;
use crate::eval::history::table::{Columns, mean_of};
use crate::eval::history::topics;

/// The held shares of a conversation's utterances.
const SHARES: [f64; 6] = [0.05, 0.1, 0.25, 0.5, 0.75, 1.0];
/// The share that is held while something else is varied.
const KEPT: f64 = 0.25;
const ALPHAS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
/// The most categories of a scope; the paper's prototype has ten.
const CATEGORIES: [u32; 6] = [1, 2, 5, 10, 20, 40];
/// The most groups of a scope.
const GROUPS: [u32; 5] = [4, 8, 16, 32, 64];
/// The number of recalled utterances at which recall is measured.
const K: usize = 10;
/// Draws of random eviction; its figures are means over them.
const DRAWS: u64 = 5;
/// The share of importance of the rule that long conversations are advised.
const IMPORTANCE: f64 = 0.75;

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

fn line<X: Copy + Into<f64>>(
    name: &str,
    at: impl IntoIterator<Item = X>,
    figures: impl Fn(X) -> Figures,
) -> Line {
    let points = at.into_iter().map(|at| Point { at: at.into(), figures: figures(at) });
    Line { name: name.to_owned(), points: points.collect() }
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
    let important = |config: &mut HistoryConfig| config.importance_share = IMPORTANCE;
    let about = format!("{} conversations of LoCoMo.", conversations.len());
    let sweep = |title: &str, setting, lines| Sweep {
        title: format!("{title}, LoCoMo"),
        about: about.clone(),
        setting,
        lines,
    };
    let random = at_random(KEPT);
    vec![
        sweep(
            "How much is held (N)",
            "share of the utterances held",
            vec![
                line("the rule", SHARES, |share| figures(&varied.by_rule(share, |_| ()))),
                line("importance 0.75", SHARES, |share| figures(&varied.by_rule(share, important))),
                line("the latest", SHARES, |share| {
                    figures(&varied.measure(share, Eviction::Recency, Method::All))
                }),
                line("at random", SHARES, at_random),
            ],
        ),
        sweep(
            "The share of relevance (α), a quarter held",
            "alpha",
            vec![
                line("the rule", ALPHAS, |alpha| {
                    figures(&varied.by_rule(KEPT, |config| config.alpha = alpha))
                }),
                line("at random", ALPHAS, |_| random.clone()),
            ],
        ),
        sweep("The most categories, everything held", "categories", {
            clusters(varied, &CATEGORIES, |config, most| config.max_categories = most, &figures)
        }),
        sweep("The most groups, everything held", "groups", {
            clusters(varied, &GROUPS, |config, most| config.max_groups = most, &figures)
        }),
    ]
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
    let about = format!("{} conversations of TopiOCQA.", conversations.len());
    let sweep = |title: &str, setting, lines| Sweep {
        title: format!("{title}, TopiOCQA"),
        about: about.clone(),
        setting,
        lines,
    };
    vec![
        sweep(
            "How much is held (N)",
            "share of the utterances held",
            vec![
                line("the rule", SHARES, |share| figures(&varied.by_rule(share, |_| ()))),
                line("at random", SHARES, |share| {
                    figures(&varied.measure(share, Eviction::Random, Method::All))
                }),
            ],
        ),
        sweep("The most categories, everything held", "categories", {
            clusters(varied, &CATEGORIES, |config, most| config.max_categories = most, &figures)
        }),
        sweep("The most groups, everything held", "groups", {
            clusters(varied, &GROUPS, |config, most| config.max_groups = most, &figures)
        }),
    ]
}

/// Varies the most categories or groups, as the engine's hierarchy finds and as all of it does.
fn clusters(
    varied: &Varied<'_>,
    at: &[u32],
    change: fn(&mut ClustersConfig, u32),
    figures: &dyn Fn(&Measure) -> Figures,
) -> Vec<Line> {
    let by = |method: Method| {
        line(method.name(), at.iter().copied(), |most| {
            let mut measure = varied.measure(1.0, Eviction::None, method);
            change(&mut measure.config.clusters, most);
            figures(&measure)
        })
    };
    vec![by(Method::Hierarchy), by(Method::All)]
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
