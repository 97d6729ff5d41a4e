//! Finds the facts of the graph that a turn asks for.
//!
//! Common knowledge is no small talk. Where neither documents nor tables are configured and no
//! language model words the response, the response says a fact only to a user who asks for it: what
//! a thing in general is, is used for, where it is found, what it causes. "Where is my parcel?"
//! asks for one particular parcel, and no fact of the graph answers that. For such a turn, source
//! planning leaves the graph out of the plan. For any other, the decision picks the facts that
//! answer it.

use std::collections::BTreeSet;

use turnstream_knowledge::View;
use turnstream_knowledge::language::Lexicon;
use turnstream_knowledge::linking::Mention;
use turnstream_knowledge::small_talk::spoken_words;
use turnstream_knowledge::terms::terms;
use turnstream_schemas::{Evidence, FactStatement};

use crate::flow::TurnInFlight;
use crate::generation::answers_in_chinese;

/// The most facts that a turn is answered with.
const MOST: usize = 3;

/// The least weight of a fact that may be said. ConceptNet gives one plain assertion 1, and .79 to
/// one that was also voted for once; facts with less are seldom true.
const LEAST_WEIGHT: f32 = 0.75;

/// What a question asks of a concept.
#[derive(Clone, Copy)]
enum AskedFor {
    /// Facts of these relations whose head it is.
    Tails(&'static [&'static str]),
    /// Facts of these relations whose tail it is.
    Heads(&'static [&'static str]),
    /// Whether such a fact holds, of a tail that the question names.
    Whether(&'static [&'static str]),
}

use AskedFor::{Heads, Tails, Whether};

/// The words before and after the concept in a question, and what the question asks for. An empty
/// text means that the question has no words there; `…` matches any words of a question.
#[rustfmt::skip]
const QUESTIONS: &[(&[&str], &[&str], AskedFor)] = &[
    (
        &["what is", "what's", "what are", "define"],
        &["used for", "for", "good for", "useful for"],
        Tails(&["UsedFor"]),
    ),
    (&["what is", "what's", "what are"], &["made of", "made from"], Tails(&["MadeOf"])),
    (&["what is", "what's", "what are", "define"], &[""], Tails(&["IsA", "DefinedAs", "InstanceOf"])),
    (
        &["what can you use", "what can i use", "what do you use", "what would you use", "what do people use"],
        &["for"],
        Tails(&["UsedFor"]),
    ),
    (&["what do you do with", "what can you do with", "what can i do with"], &[""], Tails(&["UsedFor"])),
    (
        &["what is the use of", "what is the purpose of", "what use is", "what use are"],
        &[""],
        Tails(&["UsedFor"]),
    ),
    (&["where is", "where are"], &["", "found", "kept", "usually", "usually found"], Tails(&["AtLocation", "LocatedNear"])),
    (
        &["where do you find", "where can you find", "where would you find", "where do people keep", "where do you keep"],
        &[""],
        Tails(&["AtLocation", "LocatedNear"]),
    ),
    (&["what is in", "what's in", "what is inside", "what do you find in", "what can you find in"], &[""], Heads(&["AtLocation"])),
    (&["what causes", "what can cause", "what leads to"], &[""], Heads(&["Causes"])),
    (&["what does", "what do", "what can", "what could"], &["cause", "lead to"], Tails(&["Causes"])),
    (
        &["what happens when you", "what happens if you", "what happens after", "what is the effect of", "what are the effects of"],
        &[""],
        Tails(&["Causes", "HasSubevent", "HasLastSubevent"]),
    ),
    (&["what can", "what does", "what do"], &["do"], Tails(&["CapableOf"])),
    (&["what does", "what do"], &["have", "consist of"], Tails(&["HasA"])),
    (&["what does", "what do"], &["want"], Tails(&["Desires"])),
    (
        &["why do people", "why do you", "why would you", "why would people", "why would somebody"],
        &[""],
        Tails(&["MotivatedByGoal", "CausesDesire"]),
    ),
    (
        &["how do you", "how does one", "how to", "what do you need to", "what do you need for", "what does one need to", "what is needed for"],
        &[""],
        Tails(&["HasPrerequisite", "HasFirstSubevent"]),
    ),
    (
        &["what kinds of", "what is an example of", "what are examples of", "what types of", "name"],
        &["", "are there"],
        Heads(&["IsA"]),
    ),
    (&["can", "could", "do", "does"], &["…"], Whether(&["CapableOf", "Desires", "HasA"])),
    (&["is", "are"], &["…"], Whether(&["IsA", "HasProperty"])),
    (
        &["tell me about", "tell me something about", "what do you know about", "what of", "what about", "and", ""],
        &[""],
        Tails(&["IsA", "UsedFor", "MadeOf", "HasProperty", "CapableOf", "AtLocation", "Causes"]),
    ),
];

/// Returns the places in the evidence of the facts that a turn asks for, the most relevant first.
pub(crate) fn asked_facts(turn: &TurnInFlight, graph: View<'_>) -> Vec<usize> {
    let facts = turn.evidence.iter().enumerate();
    let facts = facts.filter_map(|(at, evidence)| Some((at, evidence, evidence.fact.as_ref()?)));
    let chinese = turn.context.lexicon().is_chinese();
    let mut found: Vec<(usize, &Evidence)> = if chinese {
        let query = Lexicon::chinese().key(turn.context.query());
        let named: Vec<&str> = current(turn).map(|it| graph.concept(it.concept)).collect();
        facts
            .filter(|(_, _, fact)| named.contains(&fact.head.as_str()))
            .filter(|(_, _, fact)| answers_in_chinese(&fact.relation, &query))
            .map(|(at, evidence, _)| (at, evidence))
            .collect()
    } else {
        let asked: Vec<(&str, AskedFor)> = current(turn)
            .flat_map(|mention| questions(turn.context.query(), mention, graph))
            .collect();
        let words: BTreeSet<String> = terms(turn.context.query()).into_iter().collect();
        facts
            .filter(|(_, _, fact)| fact.weight >= LEAST_WEIGHT)
            .filter(|(_, _, fact)| asked.iter().any(|of| is_asked(fact, *of, &words)))
            .map(|(at, evidence, _)| (at, evidence))
            .collect()
    };
    found.sort_by(|(_, a), (_, b)| b.relevance.get().total_cmp(&a.relevance.get()));
    let mut said = BTreeSet::new();
    found.retain(|(_, evidence)| {
        // "When you run, you may sweat" and "running can make you sweat" are said once.
        let sides = evidence.fact.as_ref().map(|fact| (&fact.head, &fact.tail));
        sides.is_some_and(|(head, tail)| head != tail && said.insert((head, tail)))
    });
    found.truncate(MOST);
    found.into_iter().map(|(at, _)| at).collect()
}

/// Whether a turn asks for facts at all; if not, source planning need not plan the graph.
pub(crate) fn asks_for_facts(turn: &TurnInFlight, graph: View<'_>) -> bool {
    if turn.context.lexicon().is_chinese() {
        return current(turn).next().is_some();
    }
    current(turn).any(|mention| !questions(turn.context.query(), mention, graph).is_empty())
}

/// Returns the concepts that the current utterance names.
fn current(turn: &TurnInFlight) -> impl Iterator<Item = &Mention> {
    let current = turn.context.dialogue.len().saturating_sub(1) as u32;
    turn.mentions.iter().filter(move |mention| mention.utterance == current)
}

/// Returns what an utterance asks of a concept that it names.
fn questions<'g>(utterance: &str, mention: &Mention, graph: View<'g>) -> Vec<(&'g str, AskedFor)> {
    let concept = graph.concept(mention.concept);
    let (start, end) = (mention.span.start as usize, mention.span.end as usize);
    let (Some(before), Some(after)) = (utterance.get(..start), utterance.get(end..)) else {
        return Vec::new();
    };
    let before = before.rsplit(['.', '!', '?', ',', ';']).next().unwrap_or_default();
    let sentence_ends = after.find(['.', '!', '?']).unwrap_or(after.len());
    let is_question = after[sentence_ends..].starts_with('?');
    // "The", "my" or "next" before the name is kept, so that no question fits: the user means one
    // thing of many.
    let mut before = spoken_words(before);
    before.pop_if(|word| ["a", "an", "some", "any", "most"].contains(&word.as_str()));
    let (before, after) = (before.join(" "), spoken_words(&after[..sentence_ends]).join(" "));
    let fits = |(leads, follows, _): &&(&[&str], &[&str], AskedFor)| {
        let leads = leads.iter().any(|lead| {
            // A name alone asks for something only with a question mark.
            *lead == before && (is_question || !["", "and"].contains(lead))
        });
        leads && follows.iter().any(|follow| *follow == after || *follow == "…" && is_question)
    };
    QUESTIONS.iter().filter(fits).map(|(_, _, asked)| (concept, *asked)).collect()
}

fn is_asked(
    fact: &FactStatement,
    (concept, asked): (&str, AskedFor),
    words: &BTreeSet<String>,
) -> bool {
    let is_of = |relations: &[&str]| {
        let relation = fact.relation.strip_prefix("Not").unwrap_or(&fact.relation);
        relations.contains(&relation)
    };
    match asked {
        Tails(relations) => is_of(relations) && fact.head == concept,
        Heads(relations) => is_of(relations) && fact.tail == concept,
        Whether(relations) => {
            let tail = terms(&fact.tail);
            let is_named = !tail.is_empty() && tail.iter().all(|term| words.contains(term));
            is_of(relations) && fact.head == concept && is_named
        }
    }
}

#[cfg(test)]
mod tests {
    use turnstream_schemas::{Score, SourceName};

    use super::*;
    use crate::testing::{graph, scene};

    const FACTS: &str = "lighthouse UsedFor guide_ship 1\nlighthouse IsA tower 2\n\
                         lighthouse AtLocation coast 1\nlighthouse HasA lamp 1\n\
                         coffee Causes insomnia 1\ndog -CapableOf fly 1\ndog CapableOf bark 2\n\
                         dog IsA machine 0.5\nbread MadeOf flour 1\n大桥 地址 河边 1\n大桥 评分 四分 1";

    /// Returns the facts that answer a turn, of all that the graph has.
    fn asked(said: &str) -> Vec<String> {
        let told = FACTS.replace("dog -CapableOf", "dog NotCapableOf");
        let graph = graph(&told);
        let evidence = told.lines().map(|line| {
            let parts: Vec<String> =
                line.split_whitespace().map(|part| part.replace('_', " ")).collect();
            let [head, relation, tail, weight] = &parts[..] else { panic!("{line}") };
            let fact = FactStatement {
                head: head.clone(),
                relation: relation.clone(),
                tail: tail.clone(),
                weight: weight.parse().expect("a weight"),
                negated: relation.starts_with("Not"),
                ..FactStatement::default()
            };
            let text = format!("{head} {relation} {tail}");
            let found = crate::testing::document("graph", &text, &text, 0.5);
            let source = SourceName("graph".to_owned());
            Evidence {
                document: None,
                fact: Some(fact),
                source,
                relevance: Score::new(0.5),
                ..found
            }
        });
        let turn = TurnInFlight {
            evidence: evidence.collect(),
            ..scene(&[&format!("u: {said}")], &graph)
        };
        let facts = asked_facts(&turn, graph.view());
        let is_asked = asks_for_facts(&turn, graph.view());
        assert!(is_asked || facts.is_empty(), "{said}: what is not searched for cannot be said");
        facts.into_iter().map(|at| turn.evidence[at].text.clone()).collect()
    }

    #[test]
    fn who_asks_for_a_relation_gets_it() {
        for (said, told) in [
            ("What is a lighthouse used for?", "lighthouse UsedFor guide ship"),
            ("Hello! what are lighthouses for", "lighthouse UsedFor guide ship"),
            ("What is a lighthouse?", "lighthouse IsA tower"),
            ("So, where do you find lighthouses?", "lighthouse AtLocation coast"),
            ("what do lighthouses have?", "lighthouse HasA lamp"),
            ("What causes insomnia?", "coffee Causes insomnia"),
            ("What does coffee cause?", "coffee Causes insomnia"),
            ("Can a dog fly?", "dog NotCapableOf fly"),
            ("What can dogs do?", "dog CapableOf bark"),
            ("what is bread made of?", "bread MadeOf flour"),
            ("大桥在哪里？", "大桥 地址 河边"),
        ] {
            assert!(asked(said).iter().any(|it| it == told), "{said}: {:?}", asked(said));
        }
        assert_eq!(asked("Can a dog bark?"), ["dog CapableOf bark"], "and nothing else");
        assert_eq!(asked("Lighthouses?").len(), 3);
    }

    #[test]
    fn who_asks_for_something_else_does_not() {
        for said in [
            "Where is my dog?",
            "Where is the lighthouse?",
            "I saw a lighthouse.",
            "I love my dog!",
            "Can I book a lighthouse?",
            "Can a dog swim?",
            "What is the best lighthouse in town?",
            "How much is a coffee?",
            "what is the lighthouse ticket used for",
            "Is a dog a machine?",
            "coffee",
            "我喜欢大桥",
        ] {
            assert_eq!(asked(said), [""; 0], "{said}");
        }
    }
}
