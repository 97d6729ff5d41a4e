use proptest::prelude::*;

use super::*;

fn lemma(word: &str) -> String {
    Lexicon::english().lemma(word).into_owned()
}

#[test]
fn forms_lead_to_their_lemmas() {
    let rows = "
        dogs dog; Dogs dog; buses bus; boxes box; wishes wish; parties party; movies movie;
        potatoes potato; children child; mice mouse; women woman; people person; leaves leave;
        menus menu; iphones iphone; skis ski; sheep sheep; species species; glasses glasses;
        making make; running run; eating eat; hoping hope; hopping hop; staring stare; dying die;
        writing write; swimming swim; seeing see; being be; using use; changing change;
        tried try; died die; used use; stopped stop; opened open; visited visit; united unite;
        went go; thought think; written write; was be; has have; did do; ran run; slept sleep;
        older old; biggest big; happier happy; nicest nice; teacher teacher; stranger stranger;
        dog's dog; it's it; don't do; can't can; they'll they; o'clock o'clock;
        thing thing; sting sting; morning morning; news news; bus bus; this this; seed seed;
        need need; red red; bed bed; dangerous dangerous; tennis tennis; glass glass; during during
    ";
    for row in rows.split(';').map(str::trim) {
        let (form, expected) = row.split_once(' ').expect("a form and its lemma");
        assert_eq!(lemma(form), expected, "{form}");
    }
}

#[test]
fn the_irregular_lists_lead_nowhere_in_circles() {
    let lexicon = Lexicon::english();
    for (form, base) in &lexicon.irregular {
        assert_ne!(form, base);
        assert_eq!(lemma(form), lemma(base), "{form} and {base} end at one lemma");
        assert!(!lexicon.irregular.contains_key(base), "{form} leads on from {base}");
    }
}

#[test]
fn every_list_is_lower_case_and_has_words() {
    let lexicon = Lexicon::english();
    for (name, list) in [
        ("base forms", &lexicon.base_forms),
        ("invariant", &lexicon.invariant),
        ("gradable", &lexicon.gradable),
        ("function words", &lexicon.function_words),
        ("stop words", &lexicon.stop_words),
        ("particles", &lexicon.particles),
        ("greetings", &lexicon.greetings),
        ("acknowledgements", &lexicon.acknowledgements),
        ("verbs", &lexicon.verbs),
    ] {
        assert!(list.len() > 5, "{name}");
        assert!(list.iter().all(|word| *word == word.to_lowercase()), "{name}");
    }
    for word in &lexicon.stop_words {
        assert_eq!(lemma(word), *word, "a stop word is given as its lemma");
    }
}

#[test]
fn words_have_spans_and_kinds() {
    let lexicon = Lexicon::english();
    let text = "The co-workers’ dogs weren’t running… 3.5 km";
    let words = lexicon.words(text);
    let shown: Vec<(&str, &str, bool)> = words
        .iter()
        .map(|word| (word.span.of(text).unwrap_or("?"), &*word.lemma, word.function_word))
        .collect();
    assert_eq!(
        shown,
        [
            ("The", "the", true),
            ("co", "co", false),
            ("workers", "worker", false),
            ("dogs", "dog", false),
            ("weren’t", "be", true),
            ("running", "run", false),
            ("3.5", "3.5", false),
            ("km", "km", false),
        ]
    );
    assert!(lexicon.words("").is_empty() && lexicon.words("?! …").is_empty());
}

#[test]
fn formulas_are_whole_texts() {
    let lexicon = Lexicon::english();
    for text in ["Hi!", "Good morning.", "hello there, how are you?", "Bye bye"] {
        assert!(lexicon.is_greeting(text), "{text}");
    }
    for text in ["OK, thanks!", "Great. That's all, thank you.", "I see", "yes please"] {
        assert!(lexicon.is_acknowledgement(text), "{text}");
    }
    for text in ["", "Hi, where is the museum?", "ok but why", "great danes are dogs"] {
        assert!(!lexicon.is_greeting(text) && !lexicon.is_acknowledgement(text), "{text}");
    }
}

#[test]
fn verbs_are_inflected() {
    let lexicon = Lexicon::english();
    for (verb, gerund, participle) in [
        ("make", "making", "made"),
        ("run", "running", "run"),
        ("eat", "eating", "eaten"),
        ("die", "dying", "died"),
        ("see", "seeing", "seen"),
        ("visit", "visiting", "visited"),
        ("begin", "beginning", "begun"),
        ("quit", "quitting", "quit"),
        ("carry", "carrying", "carried"),
        ("play", "playing", "played"),
        ("bake", "baking", "baked"),
        ("fix", "fixing", "fixed"),
        ("panic", "panicking", "panicked"),
        ("dye", "dyeing", "dyed"),
        ("grind", "grinding", "ground"),
        ("be", "being", "been"),
    ] {
        assert_eq!(lexicon.gerund(verb), gerund);
        assert_eq!(lexicon.participle(verb), participle);
    }
}

/// Words as they occur: known ones with endings and clitics, and arbitrary ones.
fn any_word() -> impl Strategy<Value = String> {
    let mut known: Vec<&str> = Lexicon::english().base_forms.iter().copied().collect();
    known.extend(Lexicon::english().irregular.keys());
    known.sort_unstable();
    let ending = prop::sample::select(vec![
        "", "s", "es", "ed", "ing", "er", "est", "ies", "'s", "n't", "ings", "eds", "’s", "'ll's",
    ]);
    prop_oneof![
        (prop::sample::select(known), ending).prop_map(|(word, ending)| format!("{word}{ending}")),
        "[a-z']{1,12}",
        "\\PC{1,8}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_lemma_is_its_own_lemma(word in any_word()) {
        let once = lemma(&word);
        prop_assert_eq!(lemma(&once), once);
    }

    #[test]
    fn a_key_is_its_own_key(words in prop::collection::vec(any_word(), 0..5)) {
        let lexicon = Lexicon::english();
        let key = lexicon.key(&words.join(" "));
        prop_assert_eq!(lexicon.key(&key), key);
    }

    #[test]
    fn spans_are_in_order_and_hold_their_words(text in "\\PC{0,60}") {
        let mut end = 0;
        for word in Lexicon::english().words(&text) {
            prop_assert!(word.span.start >= end && word.span.end > word.span.start);
            end = word.span.end;
            let slice = word.span.of(&text).expect("a span inside the text");
            prop_assert_eq!(lemma(slice), word.lemma);
        }
    }
}
