//! Converts parts of a turn to the fenced texts that fill a prompt's slots; and, in the other
//! direction, the names in a model's answer to concepts of the graph.

use turnstream_knowledge::linking::{LinkingConfig, link};
use turnstream_knowledge::{ConceptId, View};
use turnstream_schemas::{Evidence, Queries, Score, Speaker, Topics};

use super::fence::fenced;
use super::one_line;
use super::template::Slot;
use crate::flow::{Recalled, TurnContext};

/// Fills the slots that every stage has: the dialogue and recalled exchanges. Returns an empty text
/// for other slots.
pub fn of_context(context: &TurnContext, slot: Slot) -> String {
    let name = slot.name();
    let [user, you, _] = names(context);
    match slot {
        Slot::Dialogue => fenced(
            name,
            context.dialogue.iter().map(|said| {
                let who = if said.speaker == Speaker::User { user } else { you };
                format!("{who}: {}", said.text)
            }),
        ),
        Slot::Recalled => of_recalled(context, context.out_of_sight().map(|(_, it)| it)),
        _ => String::new(),
    }
}

/// Formats earlier exchanges, in this order: query, response, and the passage that the response was
/// made from.
pub fn of_recalled<'r>(
    context: &TurnContext,
    recalled: impl IntoIterator<Item = &'r Recalled>,
) -> String {
    let [user, you, known] = names(context);
    let lines = recalled.into_iter().map(|recalled| {
        let entry = &recalled.entry;
        let said = [(user, entry.query.as_deref()), (you, entry.response.as_deref())];
        let passage = recalled.best_passage().map(|passage| &*passage.text);
        let said = said.into_iter().chain([(known, passage)]);
        let said = said.filter_map(|(who, text)| Some(format!("{who}: {}", text?)));
        said.collect::<Vec<_>>().join(" / ")
    });
    fenced(Slot::Recalled.name(), lines)
}

/// Returns the labels of the user, of the system and of a passage, in the language of the turn.
fn names(context: &TurnContext) -> [&'static str; 3] {
    if context.lexicon().is_chinese() {
        ["用户", "你", "依据"]
    } else {
        ["user", "you", "known"]
    }
}

/// Formats exchanges to summarise: query and response of each.
pub fn of_exchanges(context: &TurnContext, exchanges: &[[Option<String>; 2]]) -> String {
    let [user, you, _] = names(context);
    let lines = exchanges.iter().map(|said| {
        let said = [user, you].into_iter().zip(said);
        let said = said.filter_map(|(who, text)| Some(format!("{who}: {}", text.as_ref()?)));
        said.collect::<Vec<_>>().join(" / ")
    });
    fenced(Slot::Exchanges.name(), lines)
}

/// Formats queries and the thought behind them.
pub fn of_queries(queries: &Queries, thought: &str) -> String {
    let explicit = queries.explicit.iter().map(|query| query.concept.as_str());
    let implicit = queries.implicit.iter().map(|query| query.concept.as_str());
    lists(
        Slot::Queries,
        thought,
        [("explicit", explicit.collect()), ("implicit", implicit.collect())],
    )
}

/// Formats topics and the thought behind them.
pub fn of_topics(topics: &Topics, thought: &str) -> String {
    let maintained = topics.maintained.iter().map(|topic| topic.concept.as_str());
    let extended = topics.extended.iter().map(|topic| topic.concept.as_str());
    let lists_of = [("maintained", maintained.collect()), ("extended", extended.collect())];
    lists(Slot::Topics, thought, lists_of)
}

fn lists(slot: Slot, thought: &str, lists: [(&str, Vec<&str>); 2]) -> String {
    let thought = (!thought.is_empty()).then(|| thought.to_owned());
    let lists = lists.into_iter().filter(|(_, concepts)| !concepts.is_empty());
    let lists = lists.map(|(name, concepts)| format!("{name}: {}", concepts.join(", ")));
    fenced(slot.name(), thought.into_iter().chain(lists))
}

/// Formats evidence as numbered lines, the first with the number `first`.
pub fn numbered<'e>(
    slot: Slot,
    evidence: impl IntoIterator<Item = &'e Evidence>,
    first: usize,
) -> String {
    let lines = evidence.into_iter().enumerate().map(|(at, evidence)| {
        let denied = if denies(evidence) { " (denied)" } else { "" };
        format!("{}. {}{denied}", first + at, evidence.text)
    });
    fenced(slot.name(), lines)
}

/// Formats selected facts, or selected passages with their titles.
pub fn of_evidence(slot: Slot, evidence: &[Evidence]) -> String {
    let wanted = selected(evidence).into_iter().filter(|evidence| {
        evidence.persona.is_none() && evidence.document.is_some() == (slot == Slot::Passages)
    });
    let line = |evidence: &Evidence| {
        let title = evidence.document.as_ref().map_or("", |passage| &*passage.title);
        let titled = if title.is_empty() { String::new() } else { format!("{title}: ") };
        let denied = if denies(evidence) { " (denied)" } else { "" };
        format!("{titled}{}{denied}", evidence.text)
    };
    fenced(slot.name(), wanted.map(line))
}

/// Formats selected sentences of the persona, each with the party that it describes.
pub fn of_persona(context: &TurnContext, evidence: &[Evidence]) -> String {
    let [user, you, _] = names(context);
    let lines = selected(evidence).into_iter().filter_map(|evidence| {
        let who = match evidence.persona.as_ref()?.describes {
            Speaker::User => user,
            Speaker::System => you,
        };
        Some(format!("{who}: {}", evidence.text))
    });
    fenced(Slot::Persona.name(), lines)
}

/// Returns the selected evidence, by falling attention where it was weighed, else in its order.
fn selected(evidence: &[Evidence]) -> Vec<&Evidence> {
    let attention = |evidence: &Evidence| evidence.attention.map_or(0.0, Score::get);
    let mut selected: Vec<&Evidence> =
        evidence.iter().filter(|evidence| evidence.selected).collect();
    selected.sort_by(|a, b| attention(b).total_cmp(&attention(a)));
    selected
}

/// Whether the evidence is a denied fact.
fn denies(evidence: &Evidence) -> bool {
    evidence.fact.as_ref().is_some_and(|fact| fact.negated)
}

/// Returns the concept of the graph that a model means by a name: the one with exactly that name,
/// else the longest one that linking finds in it; the first of equals.
pub fn concept(graph: View<'_>, context: &TurnContext, name: &str) -> Option<ConceptId> {
    let name = one_line(name).to_lowercase();
    if let Some(concept) = graph.find(&name) {
        return Some(concept);
    }
    let mentions = link(graph, [(context.lexicon(), &*name)], &LinkingConfig::default());
    let longest = mentions.iter().rev().max_by_key(|mention| mention.span.end - mention.span.start);
    longest.map(|mention| mention.concept)
}
