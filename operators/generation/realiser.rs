//! The realiser makes one to three sentences from the selected facts, passages and the history. It
//! does not use personas.

use turnstream_knowledge::View;
use turnstream_knowledge::language::has_han;
use turnstream_knowledge::linking::Mention;
use turnstream_knowledge::small_talk::{SmallTalk, SmallTalkReading, small_talk_in, spoken_words};
use turnstream_schemas::{Action, Evidence, FactStatement, RecalledVia, Speaker};

use super::GenerationConfig;
use super::chinese;
use super::grammar::{Grammar, PhraseSlot};
use super::passage;
use super::sayable::{Sayable, Saying, own_sentence, varied};
use super::templates::Templates;
use crate::flow::{Recalled, TurnInFlight, Utterance};
use crate::salience::word_count;

/// Least share of small talk at which a turn is answered as small talk.
const SMALL_TALK_SHARE: f64 = 0.8;

/// Least weight at which a fact comes before weaker ones of equal fit: ConceptNet gives one plain
/// assertion 1, and 0.79 to one that was also voted for once.
const FIRM_WEIGHT: f32 = 0.75;

/// Longest topic in a question of the realiser, in words; longer ones seldom read well.
const MAX_ASKED_WORDS: u32 = 2;

/// A response of the realiser.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Realised<'a> {
    /// One to three sentences.
    pub(super) text: String,
    /// The evidence that they say.
    pub(super) evidence: Vec<&'a Evidence>,
}

/// A turn to answer, with what the answer needs.
pub(super) struct Turn<'a> {
    in_flight: &'a TurnInFlight,
    graph: View<'a>,
    config: &'a GenerationConfig,
    grammar: &'static Grammar,
    words: Vec<String>,
    small_talk: SmallTalkReading,
}

/// Answers a turn.
pub(super) fn realise<'a>(
    in_flight: &'a TurnInFlight,
    graph: View<'a>,
    config: &'a GenerationConfig,
) -> Realised<'a> {
    let words = spoken_words(in_flight.context.query());
    let small_talk = small_talk_in(in_flight.context.query(), &words);
    let grammar = Grammar::english();
    let turn = Turn { in_flight, graph, config, grammar, words, small_talk };
    if !turn.is_small_talk()
        && let Some(quoted) = passage::quote(in_flight, config.max_quoted_bytes)
    {
        return quoted;
    }
    let lexicon = in_flight.context.lexicon();
    if lexicon.is_chinese() {
        return chinese::answer(&turn);
    }
    if turn.is_small_talk() {
        return said(&[turn.answer_small_talk()]);
    }
    let wanted = wanted_relations(&turn.words);
    let facts = turn.facts_to_say(&Saying {
        answers: &|fact| wanted.contains(&fact.relation.as_str()),
        clause: &|fact| Templates::english().clause(fact, grammar),
        repeats_answers: false,
    });
    if !facts.is_empty() {
        return turn.answer_from_facts(&facts);
    }
    if let Some(again) = turn.earlier_answer() {
        return said(&[format!("We had this before: {again}")]);
    }
    said(&if turn.asks() { turn.admit_not_knowing() } else { turn.take_note() })
}

pub(super) fn said(sentences: &[String]) -> Realised<'static> {
    // Chinese has no spaces between sentences.
    let joint = if sentences.first().is_some_and(|first| has_han(first)) { "" } else { " " };
    Realised { text: sentences.join(joint), evidence: Vec::new() }
}

impl<'a> Turn<'a> {
    /// Chooses one of several ways to say the same, always the same one for a scope, turn id and purpose.
    pub(super) fn choose<'c>(&self, purpose: &str, ways: &[&'c str]) -> &'c str {
        let context = &self.in_flight.context;
        let mut seed = crc32fast::Hasher::new();
        for part in [context.scope.as_str(), context.turn_id.as_str(), purpose] {
            seed.update(part.as_bytes());
            seed.update(&[0]);
        }
        ways.get(seed.finalize() as usize % ways.len().max(1)).copied().unwrap_or_default()
    }

    /// Returns the utterances before the current one.
    fn earlier(&self) -> &[Utterance] {
        self.in_flight.context.dialogue.split_last().map_or(&[], |(_, earlier)| earlier)
    }

    /// Returns the words of the turn.
    pub(super) fn query(&self) -> &'a str {
        self.in_flight.context.query()
    }

    /// Whether the turn only keeps the conversation going.
    pub(super) fn is_small_talk(&self) -> bool {
        let decided = self.in_flight.decision.as_ref();
        self.small_talk.share >= SMALL_TALK_SHARE
            || decided.is_some_and(|it| it.action == Action::Social)
    }

    /// Whether the decision chose facts that the turn asks for. Nothing else is then said.
    pub(super) fn is_asked_for_facts(&self) -> bool {
        self.in_flight.decision.as_ref().is_some_and(|it| it.pieces > 0)
    }

    /// Returns the acts of its small talk.
    pub(super) fn small_talk_acts(&self) -> &[SmallTalk] {
        &self.small_talk.acts
    }

    /// Returns the act that most needs an answer, wherever in the turn it occurs; `None` where only
    /// the reader calls the turn small talk.
    pub(super) fn first_small_talk_act(&self) -> Option<SmallTalk> {
        self.small_talk.acts.iter().min().copied()
    }

    /// Returns the concepts of the demand, then those that the turn names.
    pub(super) fn concepts(&self) -> impl Iterator<Item = &'a str> {
        self.in_flight.demand.query_concepts().chain(self.current_concepts())
    }

    /// Returns the demand's extended topics, weightiest first.
    pub(super) fn extended_topics(&self) -> impl Iterator<Item = &'a str> {
        let extended = self.in_flight.demand.topics.extended.iter();
        extended.map(|topic| topic.concept.as_str())
    }

    /// Whether a concept is the head of a fact, not only a tail.
    pub(super) fn is_described(&self, concept: &str) -> bool {
        let found = self.graph.find(concept);
        found.is_some_and(|id| self.graph.strongest_from(id, 1).next().is_some())
    }

    /// Answers small talk.
    fn answer_small_talk(&self) -> String {
        use SmallTalk::{
            Acknowledgement, Apology, Closing, Greeting, HowAreYou, Refusal, Thanks, Wellbeing,
            WhatAreYou, Wishes,
        };
        let Some(act) = self.first_small_talk_act() else {
            let ways = [
                "I am here for your questions. What would you like to know?",
                "If there is something that you would like to know, just ask.",
            ];
            return self.choose("small talk", &ways).to_owned();
        };
        let ways: &[&str] = match act {
            // Never a way around it: people are told that no person answers.
            WhatAreYou => &["I am an automatic assistant, not a person. What can I do for you?"],
            Wishes => &["Thank you, the same to you!", "Thank you, and all the best to you!"],
            Closing if self.small_talk.acts.contains(&Thanks) => {
                &["You are welcome. Goodbye!", "My pleasure. Goodbye, and take care!"]
            }
            Closing => &["Goodbye!", "Goodbye, and take care!", "See you another time!"],
            Thanks => {
                &["You are welcome!", "My pleasure!", "You are welcome. Is there anything else?"]
            }
            HowAreYou => &[
                "Thank you for asking, I am ready to go. How are you?",
                "All is well here, thank you. What is on your mind?",
            ],
            Apology => &["No problem at all.", "That is all right."],
            Greeting => &[
                "Hello! What would you like to talk about?",
                "Hello! What can I do for you?",
                "Hi! What is on your mind?",
            ],
            Wellbeing => &["Good to hear. What would you like to talk about?"],
            Refusal => &["All right.", "Fine. I am here if something comes up."],
            Acknowledgement => {
                &["All right. What would you like to know next?", "Good. What comes next?"]
            }
        };
        self.choose("small talk", ways).to_owned()
    }

    /// Returns the selected facts to say: those that can be said well, the most fitting first, of
    /// equals in the order of selection.
    pub(super) fn facts_to_say(&self, saying: &Saying<'_>) -> Vec<Sayable<'a>> {
        let current = self.current_concepts();
        let unfit = |fact: &FactStatement| {
            let answers = (saying.answers)(fact);
            let touches =
                current.iter().any(|concept| *concept == fact.head || *concept == fact.tail);
            // False sorts first. Denied facts seldom answer a question, so they come last. A fact with
            // less than the weight of one assertion is often wrong.
            (fact.negated, !answers, !touches, fact.weight < FIRM_WEIGHT)
        };
        let mut selected: Vec<(&Evidence, &FactStatement)> = self
            .in_flight
            .evidence
            .iter()
            .filter(|evidence| evidence.selected)
            .filter_map(|evidence| Some((evidence, evidence.fact.as_ref()?)))
            .collect();
        selected.sort_by_key(|(_, fact)| unfit(fact));
        let told: Vec<String> = self
            .earlier()
            .iter()
            .filter(|utterance| utterance.speaker == Speaker::System)
            .map(|utterance| utterance.text.to_lowercase())
            .collect();
        let mut sayable = Vec::<Sayable<'a>>::new();
        for (evidence, fact) in selected {
            let own = own_sentence(fact, self.in_flight.context.lexicon().is_chinese());
            let clause = own.map(str::to_owned).or_else(|| (saying.clause)(fact));
            let Some(clause) = clause else { continue };
            let lower = clause.to_lowercase();
            let again = saying.repeats_answers && (saying.answers)(fact);
            let new = (again || !told.iter().any(|told| told.contains(&lower)))
                && !sayable.iter().any(|other| other.clause == clause);
            if new {
                sayable.push(Sayable { evidence, fact, clause, is_own: own.is_some() });
            }
        }
        varied(sayable, self.config.max_facts_said as usize)
    }

    /// Returns the concepts that the current turn names, as the graph writes them.
    pub(super) fn current_concepts(&self) -> Vec<&'a str> {
        self.current_mentions().map(|mention| self.graph.concept(mention.concept)).collect()
    }

    fn current_mentions(&self) -> impl Iterator<Item = &'a Mention> {
        let current = self.in_flight.context.dialogue.len().saturating_sub(1) as u32;
        let mentions = self.in_flight.mentions.iter();
        mentions.filter(move |mention| mention.utterance == current)
    }

    /// Says the facts; where there is room, looks back at an earlier exchange or asks about a topic.
    fn answer_from_facts(&self, facts: &[Sayable<'a>]) -> Realised<'a> {
        let greets = self.small_talk.acts.contains(&SmallTalk::Greeting);
        let greeting = if greets { "Hello! " } else { "" };
        let openers: &[&str] = if greets {
            &["Hello! As far as I know, ", "Hello! "]
        } else {
            &["", "As far as I know, ", "From what I know, ", "Well, "]
        };
        let connectors = &["Also, ", "Besides, ", "And ", "What is more, "];
        let mut sentences = Vec::new();
        for (at, fact) in facts.iter().enumerate() {
            let (lead, greeting) = match at {
                0 => (self.choose("opener", openers), greeting),
                _ => (self.choose("connector", connectors), ""),
            };
            let own = fact.own_sentence(greeting, '.');
            sentences.push(own.unwrap_or_else(|| sentence(lead, &fact.clause)));
        }
        if sentences.len() < 3
            && !self.is_asked_for_facts()
            && let Some(last) = self.look_back().or_else(|| self.ask_on(facts))
        {
            sentences.push(last);
        }
        let evidence = facts.iter().map(|fact| fact.evidence).collect();
        Realised { text: sentences.join(" "), evidence }
    }

    /// Reminds the user of a recalled exchange that is no longer in the dialogue.
    fn look_back(&self) -> Option<String> {
        let recalled = self.relevant_recall()?;
        let topic = self.concept_in(recalled.entry.query.as_deref()?)?;
        Some(format!("Earlier you asked about {topic}."))
    }

    /// Returns the entry with the most attention that was recalled for its relevance and is no
    /// longer in the dialogue.
    pub(super) fn relevant_recall(&self) -> Option<&'a Recalled> {
        let earlier = self.in_flight.earlier_exchanges();
        earlier.into_iter().find(|recalled| recalled.via != RecalledVia::Recent)
    }

    /// Returns the topic of an earlier query: a concept of the demand or the current turn that the
    /// query names.
    fn concept_in(&self, query: &str) -> Option<String> {
        let words = spoken_words(query);
        let mut named = self.concepts().filter(|concept| {
            let length = concept.split(' ').count();
            words.windows(length).any(|window| concept.split(' ').eq(window.iter()))
        });
        named.find_map(|concept| self.topic(concept))
    }

    /// Asks whether to go on to an extended topic.
    fn ask_on(&self, facts: &[Sayable<'a>]) -> Option<String> {
        let said = |concept: &str| facts.iter().any(|fact| fact.mentions(concept));
        let mut new = self
            .extended_topics()
            .filter(|topic| !said(topic) && word_count(topic) <= MAX_ASKED_WORDS);
        let topic = new.find_map(|topic| self.topic(topic))?;
        let ways =
            &["Shall we talk about", "Would you like to hear about", "Are you also interested in"];
        Some(format!("{} {topic}?", self.choose("ask on", ways)))
    }

    /// Returns a concept as the object of "about".
    fn topic(&self, concept: &str) -> Option<String> {
        let (grammar, name) = (self.grammar, self.name(concept));
        let topic = grammar.say_named(concept, name, PhraseSlot::Topic);
        topic.or_else(|| grammar.going_on(concept))
    }

    fn name(&self, concept: &str) -> Option<&'a str> {
        self.graph.find(concept).and_then(|id| self.graph.name(id))
    }

    /// Returns a concept with its capitals, if it has any.
    pub(super) fn name_of<'c>(&'c self, concept: &'c str) -> &'c str {
        self.name(concept).unwrap_or(concept)
    }

    /// Returns the earlier answer to nearly the same question.
    pub(super) fn earlier_answer(&self) -> Option<&'a str> {
        let gate = &self.in_flight.gate;
        // The gate has this feature only where a recalled exchange may answer.
        gate.features.get("answered").filter(|answered| answered.get() < 0.0)?;
        let recalled = self.relevant_recall()?;
        shortened(recalled.entry.response.as_deref()?, self.config.max_repeated_bytes)
    }

    /// Whether the turn asks or requests something.
    pub(super) fn asks(&self) -> bool {
        let features = &self.in_flight.gate.features;
        ["question", "request"].iter().any(|name| features.contains_key(*name))
    }

    /// Admits that no fact answers.
    fn admit_not_knowing(&self) -> Vec<String> {
        let not_known = match self.user_topic() {
            Some(topic) => format!("I do not know enough about {topic} to answer that."),
            None => "I am not sure I can answer that.".to_owned(),
        };
        vec![not_known, "Could you tell me a little more?".to_owned()]
    }

    /// Acknowledges what the user told, and asks back.
    fn take_note(&self) -> Vec<String> {
        let note = self.choose("note", &["I see.", "Thank you for telling me.", "All right."]);
        let ask = match self.user_topic() {
            Some(topic) => format!("Could you tell me more about {topic}?"),
            None => "Could you tell me more?".to_owned(),
        };
        vec![note.to_owned(), ask]
    }

    /// Returns the topic of the current turn in the user's words: its most informative mention that
    /// can be said, the later of equals.
    fn user_topic(&self) -> Option<String> {
        let mentions = self.mentions_by_informativeness();
        mentions.into_iter().find_map(|mention| self.in_user_words(mention))
    }

    /// Returns the turn's mentions, the most informative first, the later of equals.
    pub(super) fn mentions_by_informativeness(&self) -> Vec<&'a Mention> {
        let mut mentions: Vec<&Mention> = self.current_mentions().collect();
        mentions.sort_by(|a, b| {
            b.informativeness.total_cmp(&a.informativeness).then(b.span.start.cmp(&a.span.start))
        });
        mentions
    }

    /// Returns a mention in the user's words, with the determiner changed: "my dog" becomes "your
    /// dog". Returns `None` unless the mention is surely a thing: "I pay" does not speak of pays.
    fn in_user_words(&self, mention: &Mention) -> Option<String> {
        let concept = self.graph.concept(mention.concept);
        let topic = self.topic(concept)?;
        self.grammar.say(concept, PhraseSlot::Thing)?;
        let text = self.in_flight.context.query();
        let words = mention.span.of(text)?;
        let before = spoken_words(text.get(..mention.span.start as usize)?);
        let is_name = mention.span.start > 0 && words.starts_with(char::is_uppercase);
        match before.last().map(String::as_str) {
            Some("my" | "our") => Some(format!("your {words}")),
            Some("the" | "this" | "that" | "your") => Some(format!("the {words}")),
            Some("a" | "an") if !self.asks() => Some(format!("the {words}")),
            _ if is_name => Some(words.to_owned()),
            None
            | Some("about" | "of" | "for" | "with" | "like" | "love" | "and" | "is" | "are") => {
                let is_as_it_stands = words.to_lowercase().starts_with(concept);
                is_as_it_stands.then_some(topic)
            }
            Some(_) => None,
        }
    }
}

/// Returns the relations that answer this kind of question.
fn wanted_relations(words: &[String]) -> &'static [&'static str] {
    let asked = |word: &str| words.iter().any(|spoken| spoken == word);
    let phrase = |phrase: &str| words.join(" ").contains(phrase);
    if asked("where") || asked("where's") {
        &["AtLocation", "LocatedNear", "PartOf"]
    } else if asked("why") || asked("why's") {
        &["Causes", "CausesDesire", "MotivatedByGoal", "UsedFor", "HasProperty"]
    } else if phrase("what for") || phrase("used for") || asked("use") || asked("purpose") {
        &["UsedFor"]
    } else if phrase("made of") {
        &["MadeOf", "HasA"]
    } else if phrase("what happens") || phrase("effect") {
        &["Causes", "HasSubevent", "HasLastSubevent", "CausesDesire"]
    } else if asked("how") || asked("need") {
        &["HasPrerequisite", "HasFirstSubevent", "HasSubevent", "UsedFor"]
    } else if phrase("what is") || phrase("what's") || phrase("what are") {
        &["IsA", "DefinedAs", "InstanceOf", "UsedFor"]
    } else if phrase("can ") {
        &["CapableOf", "UsedFor"]
    } else {
        &[]
    }
}

/// Makes a sentence of a lead and a clause.
fn sentence(lead: &str, clause: &str) -> String {
    let begins = lead.is_empty() || lead.ends_with("! ");
    let clause = if begins { capitalised(clause) } else { clause.to_owned() };
    format!("{lead}{clause}.")
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + letters.as_str()
}

/// Returns the text, or its first sentence if only that fits; `None` if neither fits.
fn shortened(text: &str, most_bytes: u32) -> Option<&str> {
    let most = most_bytes as usize;
    let text = text.trim();
    if text.is_empty() || text.len() <= most {
        return Some(text).filter(|text| !text.is_empty());
    }
    let end = text.find(['.', '!', '?', '。', '！', '？'])?;
    let end = end + text[end..].chars().next().map_or(0, char::len_utf8);
    (end <= most).then(|| &text[..end])
}
