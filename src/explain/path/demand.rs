//! The demand of a turn: queries, topics, thoughts, and the revisions of cross revision.

use turnstream_schemas::{ExplicitQuery, ImplicitQuery, Response, Revision, Stage, Topic, Via};

use super::super::page::{Ink, Text};
use super::super::spoken::Spoken;
use super::super::tree::Tree;
use super::super::wording::revision_kind;
use super::decided;

/// Makes the tree of the demand; `None` if there is none.
pub(super) fn tree(response: &Response, spoken: &Spoken) -> Option<Tree> {
    let (demand, models) = (&response.demand, &response.models);
    let branch = |name: &str, stage: Option<Stage>, below: Vec<Tree>| {
        let by = stage.map(|stage| decided(models, stage)).unwrap_or_default();
        let head = Text::new(Ink::Label, name).and(Ink::Quiet, by);
        (!below.is_empty()).then(|| Tree::leaf(head).with(below))
    };
    let thought = |thought: &str| {
        (!thought.is_empty())
            .then(|| Tree::leaf(Text::new(Ink::Label, "thought ").and(Ink::Quiet, thought)))
    };
    let explicit = demand.queries.explicit.iter().map(|query| explicit(query, spoken)).collect();
    let implicit = demand.queries.implicit.iter().map(implicit).collect();
    let queries = [
        thought(&demand.thoughts.queries),
        branch("explicit", None, explicit),
        branch("implicit", None, implicit),
    ];
    let topics = [
        thought(&demand.thoughts.topics),
        branch("maintained", None, demand.topics.maintained.iter().map(topic).collect()),
        branch("extended", None, demand.topics.extended.iter().map(topic).collect()),
    ];
    let flat = |branches: [Option<Tree>; 3]| branches.into_iter().flatten().collect();
    let revisions = demand.revisions.iter().map(revision).collect();
    let missing = Text::new(Ink::Label, "missing ")
        .and(Ink::Plain, demand.missing.join(", "))
        .and(Ink::Quiet, ": nothing is known of it");
    let branches = [
        branch("queries", Some(Stage::QueryProduction), flat(queries)),
        branch("topics", Some(Stage::TopicPlanning), flat(topics)),
        branch("revisions", Some(Stage::CrossRevision), revisions),
        (!demand.missing.is_empty()).then(|| Tree::leaf(missing)),
    ];
    branch("demand", None, branches.into_iter().flatten().collect())
}

fn explicit(query: &ExplicitQuery, spoken: &Spoken) -> Tree {
    let words = spoken.span(&query.turn, query.span);
    let words = if words.is_empty() { String::new() } else { format!(" \"{words}\"") };
    let found = match (query.via, query.similarity) {
        (Via::Exact, _) => String::new(),
        (via, similarity) => {
            let by = if via == Via::Ngrams { "by its spelling" } else { "by its lemmas" };
            let alike = similarity.map(|alike| format!(", {:.2} alike", alike.get()));
            format!(", found {by}{}", alike.unwrap_or_default())
        }
    };
    let place = format!(
        " {:.2}, bytes {}..{}{words} of {}{found}",
        query.weight.get(),
        query.span.start,
        query.span.end,
        spoken.label(&query.turn)
    );
    Tree::leaf(Text::new(Ink::Plain, &*query.concept).and(Ink::Quiet, place))
}

fn implicit(query: &ImplicitQuery) -> Tree {
    reached(&query.concept, query.weight.get(), &query.because)
}

fn topic(topic: &Topic) -> Tree {
    reached(&topic.concept, topic.weight.get(), &topic.because)
}

/// A concept with the concepts that it was reached from.
fn reached(concept: &str, weight: f64, because: &[String]) -> Tree {
    let from = match because {
        [] => String::new(),
        because => format!(", from {}", because.join(", ")),
    };
    let text = Text::new(Ink::Plain, concept).and(Ink::Quiet, format!(" {weight:.2}{from}"));
    Tree::leaf(text)
}

fn revision(revision: &Revision) -> Tree {
    let (ink, kind) = revision_kind(revision.kind);
    let text = Text::new(ink, kind)
        .and(Ink::Plain, format!(" {}", revision.what))
        .and(Ink::Quiet, format!(" ({})", revision.why.trim_end_matches('.')));
    Tree::leaf(text)
}
