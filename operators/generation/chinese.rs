//! The realiser in Chinese: sentences for facts, for small talk, and for lack of knowledge.

use std::sync::LazyLock;

use turnstream_knowledge::chinese_clause;
use turnstream_knowledge::language::{Lexicon, has_han};
use turnstream_knowledge::small_talk::SmallTalk;
use turnstream_schemas::FactStatement;

use super::realiser::{Realised, Turn, said};
use super::sayable::{Sayable, Saying};
use crate::salience::word_count;

/// The cues of questions that a relation answers; the head of the file describes its format.
const CUES: &str = include_str!("chinese_cues.txt");

/// (relation, cues in the question).
static RELATIONS: LazyLock<Vec<(&'static str, Vec<&'static str>)>> = LazyLock::new(|| {
    let lines = CUES.lines().filter(|line| !line.starts_with('#'));
    let line = |line: &'static str| line.split_once(':');
    lines.filter_map(line).map(|(name, cues)| (name, cues.split_whitespace().collect())).collect()
});

/// Longest clause in characters; a longer one is cut after its first part.
const MAX_CLAUSE_CHARACTERS: usize = 60;

/// Longest topic in a question of the realiser, in words.
const MAX_ASKED_WORDS: u32 = 3;

/// Answers a turn in Chinese.
pub(super) fn answer<'a>(turn: &Turn<'a>) -> Realised<'a> {
    if turn.is_small_talk() {
        return said(&[small_talk(turn)]);
    }
    let asked = Lexicon::chinese().key(turn.query());
    // A concept that is only the tail of facts (a district, a price) is not what the user asks about.
    let mut named = turn.current_concepts();
    named.retain(|concept| turn.is_described(concept));
    let facts = turn.facts_to_say(&Saying {
        // Chinese names the thing before its property: 故宫的门票.
        answers: &|fact| {
            answers(&fact.relation, &asked)
                && (named.is_empty() || named.contains(&fact.head.as_str()))
        },
        clause: &clause,
        repeats_answers: true,
    });
    if !facts.is_empty() {
        return from_facts(turn, &facts);
    }
    if let Some(again) = turn.earlier_answer() {
        return said(&[format!("这个我们之前聊过：{again}")]);
    }
    said(&if turn.asks() { not_known(turn) } else { noted(turn) })
}

/// Whether a relation answers the question `asked` (folded, without punctuation).
pub(crate) fn answers(relation: &str, asked: &str) -> bool {
    let cues = RELATIONS.iter().find(|(name, _)| *name == relation);
    (has_han(relation) && asked.contains(relation))
        || cues.is_some_and(|(_, cues)| cues.iter().any(|cue| asked.contains(cue)))
}

/// Returns a fact as a clause, cut after its first part if it is too long; `None` if that does not
/// fit either.
fn clause(fact: &FactStatement) -> Option<String> {
    let [head, tail] = fact.names();
    let clause = chinese_clause(head, &fact.relation, tail, fact.negated)?;
    if clause.chars().count() <= MAX_CLAUSE_CHARACTERS {
        return Some(clause);
    }
    let end = clause.find(['。', '；', '！', '？', '#'])?;
    let first = clause[..end].trim_end();
    (first.chars().count() <= MAX_CLAUSE_CHARACTERS && first.len() < clause.len())
        .then(|| first.to_owned())
}

fn small_talk(turn: &Turn<'_>) -> String {
    use SmallTalk::{
        Acknowledgement, Apology, Closing, Greeting, HowAreYou, Refusal, Thanks, Wellbeing,
        WhatAreYou, Wishes,
    };
    let Some(act) = turn.first_small_talk_act() else {
        let ways = ["有想了解的，直接问我就好。", "我在呢，想了解什么可以直接问。"];
        return turn.choose("small talk", &ways).to_owned();
    };
    let ways: &[&str] = match act {
        WhatAreYou => &["我是自动助手，不是真人。有什么可以帮您的？"],
        Wishes => &["谢谢，也祝您快乐！", "谢谢，祝您一切顺利！"],
        Closing if turn.small_talk_acts().contains(&Thanks) => {
            &["不客气，再见！", "别客气，下次再聊！"]
        }
        Closing => &["再见！", "再见，保重！", "下次再聊！"],
        Thanks => &["不客气！", "别客气，还有什么想聊的吗？"],
        HowAreYou => &["我很好，谢谢关心。你呢？", "都挺好的，谢谢。今天想聊点什么？"],
        Apology => &["没关系。", "没事的。"],
        Greeting => &["你好！想聊点什么？", "你好！有什么可以帮你的？"],
        Wellbeing => &["那就好。想聊点什么？"],
        Refusal => &["好的。", "好，需要的时候再找我。"],
        Acknowledgement => &["好的，接下来想聊什么？", "嗯，还想知道些什么？"],
    };
    turn.choose("small talk", ways).to_owned()
}

/// Says the facts; where there is room, looks back at an earlier exchange or asks about a topic.
fn from_facts<'a>(turn: &Turn<'_>, facts: &[Sayable<'a>]) -> Realised<'a> {
    let greets = turn.small_talk_acts().contains(&SmallTalk::Greeting);
    let greeting = if greets { "你好！" } else { "" };
    let openers: &[&str] = if greets {
        &["你好！据我所知，", "你好！"]
    } else {
        &["", "据我所知，", "我知道的是，"]
    };
    let connectors = &["另外，", "还有，", "而且，"];
    let mut sentences = Vec::new();
    for (at, fact) in facts.iter().enumerate() {
        let (lead, greeting) = match at {
            0 => (turn.choose("opener", openers), greeting),
            _ => (turn.choose("connector", connectors), ""),
        };
        let own = fact.own_sentence(greeting, '。');
        sentences.push(own.unwrap_or_else(|| format!("{lead}{}。", fact.clause)));
    }
    if sentences.len() < 3
        && !turn.is_asked_for_facts()
        && let Some(last) = look_back(turn).or_else(|| ask_on(turn, facts))
    {
        sentences.push(last);
    }
    let evidence = facts.iter().map(|fact| fact.evidence).collect();
    Realised { text: sentences.concat(), evidence }
}

/// Reminds the user of a recalled exchange that is no longer in the dialogue.
fn look_back(turn: &Turn<'_>) -> Option<String> {
    let query = turn.relevant_recall()?.entry.query.as_deref()?;
    let lexicon = Lexicon::chinese();
    let query = lexicon.key(query);
    let topic = turn
        .concepts()
        .find(|concept| has_han(concept) && query.contains(&lexicon.key(concept)))?;
    Some(format!("你之前也问过{}。", turn.name_of(topic)))
}

/// Asks whether to go on to an extended topic.
fn ask_on(turn: &Turn<'_>, facts: &[Sayable<'_>]) -> Option<String> {
    let said = |concept: &str| facts.iter().any(|fact| fact.mentions(concept));
    let fits = |concept: &&str| {
        has_han(concept)
            && !said(concept)
            && word_count(concept) <= MAX_ASKED_WORDS
            && turn.is_described(concept)
    };
    let topic = turn.extended_topics().find(fits)?;
    let ways = &["要不要聊聊", "想不想了解一下"];
    Some(format!("{}{}？", turn.choose("ask on", ways), turn.name_of(topic)))
}

/// Admits that no fact answers.
fn not_known(turn: &Turn<'_>) -> Vec<String> {
    let ways = &["能再说具体一点吗？", "你最关心的是哪一点？"];
    match user_topic(turn) {
        Some(topic) => vec![
            format!("关于{topic}，我知道的还不够，回答不了。"),
            turn.choose("ask back", ways).to_owned(),
        ],
        None => vec!["这个我不太确定，能再说具体一点吗？".to_owned()],
    }
}

/// Acknowledges what the user told, and asks back.
fn noted(turn: &Turn<'_>) -> Vec<String> {
    let note = turn.choose("note", &["原来如此。", "谢谢你告诉我。", "明白了。"]);
    let ask = match user_topic(turn) {
        Some(topic) => format!("能再说说{topic}吗？"),
        None => "能再多说一点吗？".to_owned(),
    };
    vec![note.to_owned(), ask]
}

/// Returns the topic of the current turn, in the user's words.
fn user_topic<'t>(turn: &Turn<'t>) -> Option<&'t str> {
    turn.mentions_by_informativeness().into_iter().find_map(|mention| mention.span.of(turn.query()))
}
