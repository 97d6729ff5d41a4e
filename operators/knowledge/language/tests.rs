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
        dog's dog; a'n't a; it's it; don't do; can't can; they'll they; o'clock o'clock;
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
        ("seldom meant", &lexicon.seldom_meant),
        ("particles", &lexicon.particles),
        ("greetings", &lexicon.greetings),
        ("acknowledgements", &lexicon.acknowledgements),
        ("verbs", &lexicon.verbs),
    ] {
        assert!(list.len() > 5, "{name}");
        assert!(list.iter().all(|word| *word == word.to_lowercase()), "{name}");
    }
    for word in lexicon.stop_words.iter().chain(&lexicon.seldom_meant) {
        assert_eq!(lemma(word), *word, "given as its lemma");
    }
}

#[test]
fn set_phrases_are_found_where_they_begin() {
    let lexicon = Lexicon::english();
    let formula = |text: &str| lexicon.formula(&lexicon.words(text));
    for (text, words) in [
        ("Of course, sir", 2),
        ("of the course", 0),
        ("wait a minute, please", 3),
        ("what\u{2019}s up", 2),
        ("the course of course", 0),
        ("", 0),
    ] {
        assert_eq!(formula(text), words, "{text}");
    }
    assert_eq!(Lexicon::chinese().formula(&Lexicon::chinese().words("of course")), 0);
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

/// Typical words: known ones with endings and clitics, and arbitrary ones.
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

pub(crate) mod chinese {
    use super::*;

    fn cut(text: &str) -> Vec<(&str, String)> {
        let words = Lexicon::chinese().words(text);
        words
            .into_iter()
            .map(|word| (word.span.of(text).expect("inside"), word.lemma.into_owned()))
            .collect()
    }

    #[test]
    fn words_are_cut_by_the_dictionary_and_folded() {
        let plain = |text| cut(text).into_iter().map(|(_, lemma)| lemma).collect::<Vec<_>>();
        assert_eq!(plain("我想去故宫玩。"), ["我", "想", "去", "故宫", "玩"]);
        assert_eq!(plain("附近有什么景点？"), ["附近", "有", "什么", "景点"]);
        // A name outside the dictionary is cut into characters, and its neighbours stay whole.
        assert_eq!(plain("飗飖博物馆"), ["飗", "飖", "博物馆"]);
        assert_eq!(
            cut("我想去故宮，ＷＩＦＩ 3.5元"),
            [
                ("我", "我"),
                ("想", "想"),
                ("去", "去"),
                ("故宮", "故宫"),
                ("ＷＩＦＩ", "wifi"),
                ("3.5", "3.5"),
                ("元", "元")
            ]
            .map(|(span, lemma)| (span, lemma.to_owned()))
        );
        assert!(cut("").is_empty() && cut("？！……😀").is_empty());
    }

    #[test]
    fn traditional_and_full_width_text_has_the_key_of_simplified_text() {
        let key = |text| Lexicon::chinese().key(text);
        assert_eq!(key("百雅軒７９８藝術中心"), "百雅轩798艺术中心");
        assert_eq!(key("周邊 景點"), key("周边景点"));
        assert_eq!(key("Ｔ恤"), "t恤");
        assert_eq!(key("頭髮"), key("头发"));
        assert_eq!(key("乾清宮"), key("乾清宫"));
        let one = |text| Lexicon::chinese().in_one_script(text).into_owned();
        assert_eq!(
            ["乾清宮", "乾清宫", "乾淨的頭髮", "T恤"].map(one),
            ["乾清宫", "乾清宫", "干净的头发", "T恤"]
        );
        assert_eq!(cut("乾隆和天坛").len(), 3, "乾隆 is one word");
    }

    #[test]
    fn function_words_and_formulas_are_known_in_both_scripts() {
        let lexicon = Lexicon::chinese();
        let function = |text| lexicon.words(text).iter().all(|word| word.function_word);
        assert!(function("這個是什麼呢") && function("the") && !function("故宫"));
        assert!(lexicon.is_greeting("你好！") && lexicon.is_greeting("早上好，你好嗎"));
        assert!(lexicon.is_acknowledgement("好的，謝謝您。"));
        assert!(
            !lexicon.is_acknowledgement("好的，故宫在哪里") && !lexicon.is_greeting("你好奇吗")
        );
    }

    #[test]
    fn unknown_names_count_as_one_word() {
        let count = |text| Lexicon::chinese().word_count(text);
        assert_eq!((count("故宫"), count("飗飖饓博物馆"), count("飗飖 饓")), (1, 2, 2));
    }

    #[test]
    fn the_lists_are_as_words_are_read() {
        let lexicon = Lexicon::chinese();
        let lists = [
            &lexicon.function_words,
            &lexicon.stop_words,
            &lexicon.particles,
            &lexicon.name_characters,
            &lexicon.greetings,
            &lexicon.acknowledgements,
        ];
        for word in lists.into_iter().flatten() {
            assert_eq!(lexicon.key(word), *word, "simplified, half-width, without punctuation");
        }
    }

    #[test]
    fn the_language_is_told_from_the_script_unless_the_turn_names_it() {
        let of = |text| Lexicon::of_text(text).language();
        assert_eq!(of("我喜欢coffee"), "zh");
        assert_eq!(of("去New York玩"), "en", "two characters beside two words");
        assert_eq!(of("我想去New York玩"), "zh");
        assert_eq!(
            (of("I love 北京"), of("Where?"), of(""), of("12:30 😀")),
            ("en", "en", "en", "en")
        );
        let turn = |text: &str, language: Option<&str>| {
            let mut turn = Turn::new("c", turnstream_schemas::Speaker::User, text);
            turn.language = language.map(str::to_owned);
            Lexicon::of_turn(&turn).language()
        };
        assert_eq!(turn("OK", Some("zh-TW")), "zh");
        assert_eq!(turn("你好", Some("EN")), "en");
        assert_eq!((turn("你好", Some("fr")), turn("hi", None)), ("zh", "en"));
    }

    /// Chinese in both scripts, full-width and half-width letters, marks, emoji, and anything.
    pub(crate) fn any_chinese() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => prop::sample::select(vec![
                "故宫", "故宮", "的", "周边景点", "週邊景點", "天坛", "門票", "飗飖", "咖啡", "T恤", "Ｔ恤",
                "798", "７９８", "3.5", "coffee", " ", "，", "·", "😀", "1️⃣", "\u{fe0f}", "々", "〇", "乾隆",
            ]).prop_map(str::to_owned),
            2 => prop::sample::select(vec!['\u{4e00}'..'\u{9fff}', '\u{3400}'..'\u{4dbf}',
                '\u{f900}'..'\u{faff}', '\u{20000}'..'\u{2a6df}'])
                .prop_flat_map(|block| prop::char::range(block.start, block.end))
                .prop_map(String::from),
            1 => "\\PC{1,3}",
            1 => any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20000))]

        #[test]
        fn a_key_is_its_own_key(text in any_chinese()) {
            let lexicon = Lexicon::chinese();
            let key = lexicon.key(&text);
            prop_assert_eq!(&lexicon.key(&key), &key);
            prop_assert_eq!(lexicon.key(&crate::normalise(&text)), key);
        }

        #[test]
        fn words_are_in_order_and_any_run_of_them_has_the_key_of_its_lemmas(
            text in any_chinese(), first in 0..8usize, count in 1..6usize,
        ) {
            let lexicon = Lexicon::chinese();
            let words = lexicon.words(&text);
            let mut end = 0;
            for word in &words {
                prop_assert!(word.span.start >= end && word.span.end > word.span.start);
                end = word.span.end;
                prop_assert!(word.span.of(&text).is_some());
            }
            let run: Vec<_> = words.iter().skip(first).take(count).collect();
            if let (Some(from), Some(to)) = (run.first(), run.last()) {
                let span = Span { start: from.span.start, end: to.span.end };
                let lemmas: String = run.iter().map(|word| &*word.lemma).collect();
                prop_assert_eq!(lexicon.key(span.of(&text).expect("inside")), lemmas);
            }
        }
    }
}
