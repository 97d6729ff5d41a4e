//! Turns the concepts of a graph into phrases. A graph's texts are lemmas without articles ("ride
//! bicycle", "live room"); word lists turn them into noun phrases, verb phrases and places ("ride a
//! bicycle", "the living room"). A concept that is unlikely to become good English is refused; the
//! realiser then says something else.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use turnstream_knowledge::Unfit;
use turnstream_knowledge::language::{Lexicon, has_han};

/// The word lists; the head of the file describes their classes.
const LEXEMES: &str = include_str!("lexemes.txt");

/// Most words of a concept that can be said; longer ones are really sentences.
const MAX_WORDS: usize = 4;

/// Most words of a name that can be said; names of products have more words than things do.
const MAX_NAME_WORDS: usize = 8;

static ENGLISH: LazyLock<Grammar> = LazyLock::new(|| Grammar::parse(LEXEMES));

/// The kind of phrase that a slot of a template takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PhraseSlot {
    /// A noun phrase: "a dog", "coffee", "the sea".
    Thing,
    /// A noun phrase that needs no article: "coffee", "Paris", "reading".
    Stuff,
    /// A topic of talk: "coffee", "dogs", "the sea".
    Topic,
    /// A verb phrase: "ride a bicycle".
    Action,
    /// A verb phrase in the passive: "eaten".
    Undergone,
    /// An adjective: "bitter".
    Quality,
    /// A noun phrase with its preposition: "in the kitchen".
    Place,
}

impl PhraseSlot {
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "thing" => Self::Thing,
            "stuff" => Self::Stuff,
            "action" => Self::Action,
            "undergone" => Self::Undergone,
            "quality" => Self::Quality,
            "place" => Self::Place,
            _ => return None,
        })
    }
}

/// The parsed word lists.
pub(super) struct Grammar {
    /// The entries of each class.
    classes: FxHashMap<(&'static str, String), ()>,
    /// (class, written) → spoken.
    rewritings: FxHashMap<(&'static str, String), String>,
}

impl Grammar {
    /// Returns the word lists of English.
    pub(super) fn english() -> &'static Self {
        &ENGLISH
    }

    fn parse(lists: &'static str) -> Self {
        let mut grammar = Self { classes: FxHashMap::default(), rewritings: FxHashMap::default() };
        for line in lists.lines().filter(|line| !line.starts_with('#')) {
            let Some((class, entries)) = line.split_once(':') else { continue };
            for entry in entries.split_whitespace() {
                let (written, spoken) = entry.split_once('=').unwrap_or((entry, entry));
                let (written, spoken) = (written.replace('_', " "), spoken.replace('_', " "));
                grammar.classes.insert((class, written.clone()), ());
                grammar.rewritings.insert((class, written), spoken);
            }
        }
        grammar
    }

    fn is(&self, class: &'static str, word: &str) -> bool {
        self.classes.contains_key(&(class, word.to_owned()))
    }

    fn rewriting(&self, class: &'static str, written: &str) -> Option<&str> {
        self.rewritings.get(&(class, written.to_owned())).map(String::as_str)
    }

    /// Returns a concept as the phrase that a slot takes; `None` where it cannot be said there.
    pub(super) fn say(&self, concept: &str, slot: PhraseSlot) -> Option<String> {
        let concept = self.sayable(concept)?;
        match slot {
            PhraseSlot::Thing => self.thing(concept),
            PhraseSlot::Stuff => self.stuff(concept),
            PhraseSlot::Topic => self.topic(concept),
            PhraseSlot::Action => self.action(concept),
            PhraseSlot::Undergone => self.undergone(concept),
            PhraseSlot::Quality => self.quality(concept),
            PhraseSlot::Place => self.place(concept),
        }
    }

    /// Returns a concept as the subject of a sentence with a verb in the singular.
    pub(super) fn subject(&self, concept: &str) -> Option<String> {
        let concept = self.sayable(concept)?;
        if self.is("plural", last_word(self.spoken(concept))) {
            return None;
        }
        self.thing(concept)
    }

    /// Returns a concept as [`Self::say`] does, or by its name with capitals, if it has one: without
    /// an article.
    pub(super) fn say_named(
        &self,
        concept: &str,
        name: Option<&str>,
        slot: PhraseSlot,
    ) -> Option<String> {
        let Some(name) = name else { return self.say(concept, slot) };
        match slot {
            PhraseSlot::Action | PhraseSlot::Undergone | PhraseSlot::Quality => {
                self.say(concept, slot).map(|said| said.replace(concept, name))
            }
            _ if !is_sayable_name(concept) => None,
            PhraseSlot::Place => Some(format!("{} {name}", self.preposition(concept))),
            PhraseSlot::Thing | PhraseSlot::Stuff | PhraseSlot::Topic => Some(name.to_owned()),
        }
    }

    /// Returns a concept as [`Self::subject`] does, by its name if it has one.
    pub(super) fn subject_named(&self, concept: &str, name: Option<&str>) -> Option<String> {
        match name {
            None => self.subject(concept),
            Some(_) if self.is("plural", last_word(concept)) => None,
            Some(_) => self.say_named(concept, name, PhraseSlot::Thing),
        }
    }

    /// Returns an action in the progressive: "riding a bicycle".
    pub(super) fn going_on(&self, concept: &str) -> Option<String> {
        let action = self.action(self.sayable(concept)?)?;
        let (verb, rest) = split_first(&action);
        Some(format!("{}{rest}", Lexicon::english().gerund(verb)))
    }

    /// Returns the concept without a leading article, where all its words may be said.
    fn sayable<'c>(&self, concept: &'c str) -> Option<&'c str> {
        let bare = ["a ", "an ", "the "].iter().find_map(|article| concept.strip_prefix(article));
        let concept = bare.unwrap_or(concept);
        let plain = |letter: char| letter.is_ascii_lowercase() || matches!(letter, ' ' | '-');
        let fits = !concept.is_empty() && concept.chars().all(plain);
        let words = concept.split([' ', '-']);
        let said = fits
            && concept.split(' ').count() <= MAX_WORDS
            && words.clone().all(|word| !self.is("unsaid", word))
            && words.clone().all(|word| !self.is("delicate", &Lexicon::english().lemma(word)))
            && !Unfit::english().is_in(concept)
            // A single letter is not a word.
            && words.clone().all(|word| word.len() > 1 || word == "a");
        said.then_some(concept)
    }

    /// Returns the concept as people say it, where the graph writes it otherwise.
    fn spoken<'c>(&'c self, concept: &'c str) -> &'c str {
        self.rewriting("spoken", concept).or(self.rewriting("name", concept)).unwrap_or(concept)
    }

    fn is_action(&self, concept: &str) -> bool {
        let (first, rest) = split_first(concept);
        self.is("verb", first) && !(rest.is_empty() && self.is_noun_too(first))
    }

    /// Whether a verb is a noun as well.
    fn is_noun_too(&self, word: &str) -> bool {
        self.is("either", word) || self.is("mass", word) || self.is("counted", word)
    }

    fn is_name(&self, concept: &str) -> bool {
        self.is("name", concept)
    }

    /// Returns the concept as a noun phrase.
    fn thing(&self, concept: &str) -> Option<String> {
        let spoken = self.spoken(concept);
        if self.is_name(concept) {
            return Some(spoken.to_owned());
        }
        if self.is("the", spoken) {
            return Some(format!("the {spoken}"));
        }
        let noun = self.noun_phrase(spoken)?;
        Some(if self.needs_article(noun) {
            format!("{} {noun}", article(noun))
        } else {
            noun.to_owned()
        })
    }

    /// Returns the concept as a noun phrase that needs no article.
    fn stuff(&self, concept: &str) -> Option<String> {
        let spoken = self.spoken(concept);
        if self.is_name(concept) {
            return Some(spoken.to_owned());
        }
        let noun = self.noun_phrase(spoken)?;
        (!self.needs_article(noun)).then(|| noun.to_owned())
    }

    /// Returns the concept as a noun phrase for things in general: countable nouns in the plural.
    fn topic(&self, concept: &str) -> Option<String> {
        let spoken = self.spoken(concept);
        if self.is_name(concept) || self.is("the", spoken) {
            return self.thing(concept);
        }
        let noun = self.noun_phrase(spoken)?;
        if !self.needs_article(noun) {
            return Some(noun.to_owned());
        }
        Some(match noun.split_once(" of ") {
            Some((head, rest)) => format!("{} of {rest}", self.plural(head)),
            None => self.plural(noun),
        })
    }

    /// Returns the plural of a countable noun phrase whose head is its last word.
    fn plural(&self, noun: &str) -> String {
        let (before, head) = noun.split_at(noun.len() - last_word(noun).len());
        if let Some(plural) = self.rewriting("plurals", head) {
            return format!("{before}{plural}");
        }
        let vowel_y = ["ay", "ey", "oy", "uy"].iter().any(|ending| head.ends_with(ending));
        let hisses = ["s", "x", "z", "ch", "sh"].iter().any(|ending| head.ends_with(ending));
        match head.strip_suffix('y').filter(|_| !vowel_y) {
            Some(stem) => format!("{before}{stem}ies"),
            None if hisses => format!("{before}{head}es"),
            None => format!("{before}{head}s"),
        }
    }

    /// Returns the words if they can be a noun phrase.
    fn noun_phrase<'c>(&self, spoken: &'c str) -> Option<&'c str> {
        let quality = self.is("quality", spoken) && !self.is("mass", spoken);
        let odd = |word: &str| self.is("preposition", word) && word != "of";
        let (first, last) = (split_first(spoken).0, last_word(spoken));
        let ends_badly = self.is("quality", last) && spoken.contains(' ') && !self.is("mass", last);
        // A verb of the lexicon that the lists here do not know as a noun as well.
        let verb = Lexicon::english().is_verb(first) && !self.is_noun_too(first);
        let is_noun = !self.is_action(spoken)
            && !verb
            && !spoken
                .split(' ')
                .skip(1)
                .any(|word| self.is("verb", word) && !self.is_noun_too(word))
            && !self.is("qualifier", spoken)
            && !self.is("qualifier", last)
            && !quality
            && !ends_badly
            && !self.is("adverb", last)
            && !spoken.split(' ').any(odd)
            && first != "of"
            && last != "of";
        is_noun.then_some(spoken)
    }

    /// Whether a noun phrase takes an article in the singular: its head noun is the last word,
    /// or the one before "of".
    fn needs_article(&self, noun: &str) -> bool {
        let head = last_word(noun.split_once(" of ").map_or(noun, |(head, _)| head));
        let mass = self.is("mass", noun) || self.is("mass", head) || self.is("plural", head);
        let gerund = head.len() > 4 && head.ends_with("ing") && !self.is("counted", head);
        let plural = head.len() > 3
            && head.ends_with('s')
            && !["ss", "us", "is", "as", "os"].iter().any(|ending| head.ends_with(ending));
        !mass && !gerund && !plural && !self.is_name(head)
    }

    /// Returns the concept as a verb phrase, with the small words that the graph's lemmas lack.
    fn action(&self, concept: &str) -> Option<String> {
        if let Some(spoken) = self.rewriting("spoken", concept) {
            return self.is("verb", split_first(spoken).0).then(|| spoken.to_owned());
        }
        let (verb, rest) = split_first(concept);
        if !self.is("verb", verb) {
            return None;
        }
        let rest = rest.trim_start();
        if rest.is_empty() {
            return Some(verb.to_owned());
        }
        if self.is("linking", verb) && !self.is("mass", rest) {
            return self.is("quality", rest).then(|| concept.to_owned());
        }
        let (next, after) = split_first(rest);
        if self.is("adverb", next) && after.is_empty() {
            return Some(concept.to_owned());
        }
        let particle = self.rewriting("particle", verb);
        let (particle, object) = if self.is("preposition", next) || self.is("adverb", next) {
            (Some(next), after.trim_start())
        } else {
            (particle.filter(|particle| *particle != verb), rest)
        };
        let object = self.object(object)?;
        Some(match particle {
            Some(particle) => format!("{verb} {particle} {object}"),
            None => format!("{verb} {object}"),
        })
    }

    /// Returns the object of a verb: a noun phrase of at most two words, or an adverb.
    fn object(&self, object: &str) -> Option<String> {
        if self.is("adverb", object) || (object.ends_with("ly") && !object.contains(' ')) {
            return Some(object.to_owned());
        }
        (object.split(' ').count() <= 2).then(|| self.thing(object)).flatten()
    }

    /// Returns the concept as a verb phrase in the passive: "eaten". It takes verbs without an
    /// object.
    fn undergone(&self, concept: &str) -> Option<String> {
        let (verb, rest) = split_first(concept);
        let plain = self.is("verb", verb) && !self.is("linking", verb) && rest.is_empty();
        plain.then(|| Lexicon::english().participle(verb))
    }

    /// Returns the concept as an adjective.
    fn quality(&self, concept: &str) -> Option<String> {
        let spoken = self.spoken(concept);
        self.is("quality", spoken).then(|| spoken.to_owned())
    }

    /// Returns the concept as a noun phrase with its preposition.
    fn place(&self, concept: &str) -> Option<String> {
        let spoken = self.spoken(concept);
        let place = if self.is("bare", spoken) { spoken.to_owned() } else { self.thing(concept)? };
        Some(format!("{} {place}", self.preposition(spoken)))
    }

    /// Returns the preposition of a place.
    fn preposition(&self, spoken: &str) -> &'static str {
        if self.is("at", spoken) {
            "at"
        } else if self.is("on", spoken) {
            "on"
        } else {
            "in"
        }
    }
}

/// Whether a concept can be said by its name in an English sentence.
fn is_sayable_name(concept: &str) -> bool {
    concept.split(' ').count() <= MAX_NAME_WORDS
        && !has_han(concept)
        && !Unfit::english().is_in(concept)
}

/// Returns "a" or "an", by the sound that the word most likely begins with.
fn article(noun: &str) -> &'static str {
    let sounds_like_y = ["uni", "use", "usu", "eu", "one", "uk", "ur"];
    let silent_h = ["hour", "honest", "honor", "honour", "heir"];
    let begins = |list: &[&str]| list.iter().any(|start| noun.starts_with(start));
    let vowel = noun.starts_with(['a', 'e', 'i', 'o', 'u']);
    if (vowel && (!begins(&sounds_like_y) || noun.starts_with("urge"))) || begins(&silent_h) {
        "an"
    } else {
        "a"
    }
}

/// Returns the first word, and the rest with its leading space.
fn split_first(text: &str) -> (&str, &str) {
    text.split_at(text.find(' ').unwrap_or(text.len()))
}

fn last_word(text: &str) -> &str {
    text.rsplit(' ').next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concepts_are_said_as_their_slots_take_them() {
        let check = |slot, concept: &str, said: Option<&str>| {
            assert_eq!(
                Grammar::english().say(concept, slot).as_deref(),
                said,
                "{slot:?}: {concept}"
            );
        };
        check(PhraseSlot::Thing, "dog", Some("a dog"));
        check(PhraseSlot::Thing, "apple", Some("an apple"));
        check(PhraseSlot::Thing, "university", Some("a university"));
        check(PhraseSlot::Thing, "hour", Some("an hour"));
        check(PhraseSlot::Thing, "coffee", Some("coffee"));
        check(PhraseSlot::Thing, "cup of coffee", Some("a cup of coffee"));
        check(PhraseSlot::Thing, "a cup", Some("a cup"));
        check(PhraseSlot::Thing, "live room", Some("the living room"));
        check(PhraseSlot::Thing, "new york", Some("New York"));
        check(PhraseSlot::Thing, "sea", Some("the sea"));
        check(PhraseSlot::Thing, "wedding", Some("a wedding"));
        check(PhraseSlot::Thing, "cooking", Some("cooking"));
        check(PhraseSlot::Thing, "go walk", None);
        check(PhraseSlot::Thing, "hot", None);
        check(PhraseSlot::Thing, "your mouth", None);
        check(PhraseSlot::Thing, "book with ten thousand page", None);
        check(PhraseSlot::Thing, "foreign", None);
        check(PhraseSlot::Thing, "man eat fish", None);
        check(PhraseSlot::Thing, "organize event", None);
        check(PhraseSlot::Topic, "dog", Some("dogs"));
        check(PhraseSlot::Topic, "cup of coffee", Some("cups of coffee"));
        check(PhraseSlot::Topic, "city park", Some("city parks"));
        check(PhraseSlot::Topic, "party", Some("parties"));
        check(PhraseSlot::Topic, "kitchen knife", Some("kitchen knives"));
        check(PhraseSlot::Topic, "music", Some("music"));
        check(PhraseSlot::Topic, "sea", Some("the sea"));
        check(PhraseSlot::Stuff, "wood", Some("wood"));
        check(PhraseSlot::Stuff, "brick", None);
        check(PhraseSlot::Action, "ride bicycle", Some("ride a bicycle"));
        check(PhraseSlot::Action, "drink coffee", Some("drink coffee"));
        check(PhraseSlot::Action, "listen music", Some("listen to music"));
        check(PhraseSlot::Action, "listen to music", Some("listen to music"));
        check(PhraseSlot::Action, "go store", Some("go to the store"));
        check(PhraseSlot::Action, "wake up", Some("wake up"));
        check(PhraseSlot::Action, "sit quietly", Some("sit quietly"));
        check(PhraseSlot::Action, "get wet", Some("get wet"));
        check(PhraseSlot::Action, "become inebriate", None);
        check(PhraseSlot::Action, "dog", None);
        check(PhraseSlot::Action, "kill person", None);
        check(PhraseSlot::Undergone, "eat", Some("eaten"));
        check(PhraseSlot::Quality, "refresh", Some("refreshing"));
        check(PhraseSlot::Quality, "pot", None);
        check(PhraseSlot::Place, "kitchen", Some("in the kitchen"));
        check(PhraseSlot::Place, "table", Some("on a table"));
        check(PhraseSlot::Place, "home", Some("at home"));
        check(PhraseSlot::Place, "paris", Some("in Paris"));
        check(PhraseSlot::Place, "coffee shop", Some("in a coffee shop"));
    }

    #[test]
    fn a_name_is_said_with_its_capitals() {
        let check = |slot, name: &str, said: Option<&str>| {
            let found = Grammar::english().say_named(&name.to_lowercase(), Some(name), slot);
            assert_eq!(found.as_deref(), said, "{slot:?}: {name}");
        };
        check(PhraseSlot::Thing, "Contoso Bergen 300", Some("Contoso Bergen 300"));
        check(PhraseSlot::Stuff, "FSC Oak", Some("FSC Oak"));
        check(PhraseSlot::Topic, "Contoso Bergen", Some("Contoso Bergen"));
        check(PhraseSlot::Place, "Harbour Shop", Some("in Harbour Shop"));
        check(PhraseSlot::Quality, "Bitter", Some("Bitter"));
        check(PhraseSlot::Action, "Contoso Bergen", None);
        check(PhraseSlot::Thing, "A Text Of So Many Words Is A Sentence", None);
        check(PhraseSlot::Thing, "iPhone手机", None);
        assert_eq!(Grammar::english().subject_named("contoso jeans", Some("Contoso Jeans")), None);
    }

    #[test]
    fn an_action_goes_on() {
        let check = |concept: &str, said: Option<&str>| {
            assert_eq!(Grammar::english().going_on(concept).as_deref(), said, "{concept}");
        };
        check("ride bicycle", Some("riding a bicycle"));
        check("swim", Some("swimming"));
        check("drink coffee", Some("drinking coffee"));
        check("coffee", None);
    }

    #[test]
    fn a_plural_is_no_subject_of_a_singular_verb() {
        assert_eq!(Grammar::english().subject("clothe"), None);
        assert_eq!(Grammar::english().subject("dog").as_deref(), Some("a dog"));
    }
}
