use std::collections::HashMap;

use proptest::prelude::*;
use unicode_segmentation::UnicodeSegmentation;

use super::*;
use crate::{Graph, ImportedFact};

pub(super) fn graph_of(concepts: &[(&str, u32)]) -> Graph {
    let facts = concepts.iter().flat_map(|&(concept, facts)| {
        (0..facts).map(move |number| {
            ImportedFact::new(concept, "RelatedTo", &format!("zzz{number}zzz"), 1.0)
        })
    });
    Graph::from_facts(facts)
}

/// The mentions of a text, as `span=concept`.
fn linked(graph: &Graph, texts: &[&str], config: &LinkingConfig) -> Vec<String> {
    link(graph.view(), texts.iter().map(|text| (Lexicon::of_text(text), *text)), config)
        .into_iter()
        .map(|mention| {
            let text = texts[mention.utterance as usize];
            let span = mention.span.of(text).expect("a span inside its text");
            format!("{span}={}", graph.concept(mention.concept))
        })
        .collect()
}

fn check(text: &str, expected: &[&str]) {
    let graph = graph_of(&[
        ("dog", 30),
        ("person", 2_000),
        ("walk dog", 2),
        ("walk", 5),
        ("wake up", 3),
        ("ice cream", 4),
        ("ice cream truck driver school", 1),
        ("cream", 3),
        ("at home", 12),
        ("home", 6),
        ("in the", 40),
        ("your dog", 2),
        ("thing", 3),
        ("swim pool", 3),
        ("the", 9),
        ("42", 3),
        ("x", 3),
        ("find way", 3),
    ]);
    assert_eq!(linked(&graph, &[text], &LinkingConfig::default()), expected, "{text}");
}

#[test]
fn the_longest_match_over_lemmas_is_meant() {
    check("Walking dogs all day", &["Walking dogs=walk dog"]);
    check("I woke up, ice-cream trucks!", &["woke up=wake up", "ice-cream=ice cream"]);
    check(
        "ice cream truck drivers school",
        &["ice cream truck drivers school=ice cream truck driver school"],
    );
    check("The dog's swimming pool", &["dog's=dog", "swimming pool=swim pool"]);
}

#[test]
fn punctuation_parts_words() {
    check("I like to walk. Dogs too", &["walk=walk", "Dogs=dog"]);
    check("ice, cream", &["cream=cream"]);
    check("ice\ncream", &["cream=cream"]);
    check("ice (cream)", &["cream=cream"]);
}

#[test]
fn what_says_nothing_is_left_out() {
    check("the thing in the x 42", &[]);
    check("a person", &[]);
    check("", &[]);
    check("?!", &[]);
}

#[test]
fn set_phrases_name_nothing_unless_a_concept_is_longer() {
    let graph = graph_of(&[("course", 9), ("golf course", 3), ("wait", 9), ("go ahead run", 3)]);
    let check = |text: &str, expected: &[&str]| {
        assert_eq!(linked(&graph, &[text], &LinkingConfig::default()), expected, "{text}");
    };
    check("Of course, go ahead.", &[]);
    check("of course the course is a golf course", &["course=course", "golf course=golf course"]);
    check("the go ahead run", &["go ahead run=go ahead run"]);
}

#[test]
fn pieces_of_names_and_words_seldom_meant_name_nothing() {
    let facts = |source: &'static str, concepts: &[&'static str]| {
        let fact = move |concept: &&'static str| ImportedFact {
            source: source.to_owned(),
            ..ImportedFact::new(concept, "RelatedTo", "zzz", 1.0)
        };
        concepts.iter().map(fact).collect::<Vec<_>>()
    };
    let common =
        ["green", "street", "bush", "china", "clear", "clear water", "black", "shoe", "bean"];
    let graph = Graph::from_facts([facts("cn4", &common), facts("ours", &["bean"])].concat());
    let check = |text: &str, expected: &[&str]| {
        assert_eq!(linked(&graph, &[text], &LinkingConfig::default()), expected, "{text}");
    };
    check("I live in Green Street.", &[]);
    check("I live in a green street.", &["green=green", "street=street"]);
    check("is Mr. Bush here", &[]);
    check("Visit China, see green streets", &["China=china", "green=green", "streets=street"]);
    check("is it clear? Clear water!", &["Clear water=clear water"]);
    // What a source of the user's own says of a word is meant.
    check("clear beans", &["beans=bean"]);
    check("Black Shoes", &["Black=black", "Shoes=shoe"]);
    check("a black-market shoe, non-black", &["shoe=shoe"]);
}

#[test]
fn framed_phrases_need_evidence() {
    check("your dog is at home", &["dog=dog", "at home=at home"]);
    check("find a way, finding ways", &[]);
}

#[test]
fn the_latest_mentions_are_kept() {
    let graph = graph_of(&[("dog", 2), ("cat", 2)]);
    let config = LinkingConfig { max_mentions: 2, ..Default::default() };
    assert_eq!(linked(&graph, &["dog", "dog cat"], &config), ["dog=dog", "cat=cat"]);
    let one_word = LinkingConfig { max_words: 1, ..Default::default() };
    let graph = graph_of(&[("hot dog", 2), ("dog", 2)]);
    assert_eq!(linked(&graph, &["hot dog"], &one_word), ["dog=dog"]);
}

/// An independent matcher: every window of every length against a table of all concepts.
mod naive {
    use super::*;

    struct NaiveWord {
        start: usize,
        end: usize,
        lower: String,
        lemma: String,
    }

    fn words(text: &str) -> Vec<NaiveWord> {
        let lexicon = Lexicon::english();
        let found = text
            .split_word_bound_indices()
            .filter(|(_, word)| word.chars().any(char::is_alphanumeric));
        found
            .map(|(start, word)| {
                let lower = word.to_lowercase().replace('’', "'");
                let lemma = lexicon.lemma(&lower).into_owned();
                NaiveWord { start, end: start + word.len(), lower, lemma }
            })
            .collect()
    }

    fn content(word: &NaiveWord) -> bool {
        let lexicon = Lexicon::english();
        let function =
            lexicon.is_function_word(&word.lower) || lexicon.is_function_word(&word.lemma);
        !function && !lexicon.is_stop_word(&word.lemma)
    }

    fn function(word: &NaiveWord) -> bool {
        let lexicon = Lexicon::english();
        lexicon.is_function_word(&word.lower) || lexicon.is_function_word(&word.lemma)
    }

    /// The number of words at the beginning that form a set phrase.
    fn formula(words: &[NaiveWord]) -> usize {
        let phrases = include_str!("../language/en/formulas.txt").lines();
        let phrases = phrases.filter(|line| !line.starts_with('#')).map(|line| line.split(' '));
        let said = || words.iter().map(|word| word.lower.as_str());
        let begun = phrases.filter(|phrase| {
            let count = phrase.clone().count();
            count <= words.len() && phrase.clone().eq(said().take(count))
        });
        begun.map(Iterator::count).max().unwrap_or(0)
    }

    /// (span, concept) by falling length from each place.
    pub(super) fn link(graph: &Graph, text: &str, config: &LinkingConfig) -> Vec<(Span, String)> {
        let lexicon = Lexicon::english();
        let mut table: HashMap<String, Vec<ConceptId>> = HashMap::new();
        for concept in graph.concepts() {
            table.entry(lexicon.key(graph.concept(concept))).or_default().push(concept);
        }
        let words = words(text);
        let capital = |word: &NaiveWord| text[word.start..].starts_with(char::is_uppercase);
        let named = |word: &NaiveWord| capital(word) && !function(word);
        let spoken = words.iter().any(|word| !capital(word) && !function(word));
        let beside = |at: usize| {
            text[words[at].end..words[at + 1].start].trim_matches([' ', '-']).is_empty()
        };
        let in_name = |at: usize| {
            let after = at + 1 < words.len() && beside(at) && named(&words[at + 1]);
            let before = at > 1 && beside(at - 1) && beside(at - 2) && named(&words[at - 1]);
            capital(&words[at]) && spoken && (before || after)
        };
        let mut mentions = Vec::new();
        let mut free_from = 0;
        for start in 0..words.len() {
            if start < free_from {
                continue;
            }
            let formula = formula(&words[start..]);
            free_from = start + formula;
            let windows = (formula + 1..=usize::from(config.max_words)).rev();
            for window in windows.filter(|window| start + window <= words.len()) {
                let single = window == 1;
                let window = &words[start..start + window];
                let gaps = window.windows(2).map(|pair| &text[pair[0].end..pair[1].start]);
                if !gaps.into_iter().all(|gap| gap.chars().all(|c| " \t-&'".contains(c))) {
                    continue;
                }
                let key: Vec<&str> = window.iter().map(|word| word.lemma.as_str()).collect();
                let Some(concepts) = table.get(&key.join(" ")) else { continue };
                let best = concepts.iter().copied().max_by(|&a, &b| {
                    let text = |id| std::cmp::Reverse(graph.concept(id));
                    graph.degree(a).cmp(&graph.degree(b)).then(text(a).cmp(&text(b)))
                });
                let best = best.expect("a key has concepts");
                let (first, last) = (&window[0], &window[window.len() - 1]);
                let wanted = if window.len() == 1 {
                    content(first)
                        && first.lemma.chars().any(char::is_alphabetic)
                        && first.lemma.chars().count() > 1
                        && graph.informativeness(best) >= config.min_informativeness
                } else {
                    let framed =
                        function(first) || function(last) && !lexicon.is_particle(&last.lower);
                    window.iter().any(content)
                        && (!framed || graph.degree(best) >= config.min_framed_phrase_facts)
                };
                let gap = |at: usize| &text[words[at].end..words[at + 1].start];
                let end = start + window.len();
                let tied =
                    start > 0 && gap(start - 1) == "-" || end < words.len() && gap(end - 1) == "-";
                if wanted && (tied || single && in_name(start)) {
                    break;
                }
                if wanted {
                    let span = Span { start: first.start as u32, end: last.end as u32 };
                    mentions.push((span, graph.concept(best).to_owned()));
                    free_from = start + window.len();
                    break;
                }
            }
        }
        mentions
    }
}

/// A small vocabulary makes matches, overlaps and collisions of lemmas frequent.
fn any_token() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "dog", "dogs", "Dog's", "walk", "walking", "walked", "wake", "woke", "up", "in", "the",
        "your", "home", "thing", "person", "swimming", "swim", "pool", "ice", "cream", "7",
        "Cream", "Home",
    ])
}

fn any_gap() -> impl Strategy<Value = &'static str> {
    prop_oneof![12 => Just(" "), 1 => Just("-"), 1 => Just(", "), 1 => Just(". "), 1 => Just("\n")]
}

fn any_text() -> impl Strategy<Value = String> {
    prop::collection::vec((any_token(), any_gap()), 0..16)
        .prop_map(|pieces| pieces.into_iter().flat_map(|(word, gap)| [word, gap]).collect())
}

/// A text, and concepts that are mostly windows of its words.
fn any_text_and_graph() -> impl Strategy<Value = (String, Graph)> {
    let windows = prop::collection::vec((0..16usize, 1..6usize, 1..20u32), 0..16);
    let others = prop::collection::vec((any_token(), any_token(), 1..20u32), 0..4);
    (any_text(), windows, others).prop_map(|(text, windows, others)| {
        let words: Vec<&str> = text.unicode_words().collect();
        let named = windows.into_iter().map(|(start, length, facts)| {
            let window: Vec<&str> = words.iter().copied().skip(start).take(length).collect();
            (window.join(" "), facts)
        });
        let others = others.into_iter().map(|(a, b, facts)| (format!("{a} {b}"), facts));
        let concepts: Vec<(String, u32)> = named.chain(others).collect();
        let concepts: Vec<(&str, u32)> =
            concepts.iter().map(|(text, facts)| (text.as_str(), *facts)).collect();
        (text.clone(), graph_of(&concepts))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn linking_agrees_with_a_naive_matcher(
        (text, graph) in any_text_and_graph(),
        max_words in 1..=5u8,
        min_informativeness in 0.0..1.0f32,
        min_framed_phrase_facts in 0..12u32,
    ) {
        let config = LinkingConfig {
            max_words, min_informativeness, min_framed_phrase_facts, ..Default::default()
        };
        let mentions = link(graph.view(), [(Lexicon::english(), &*text)], &config);
        let found: Vec<(Span, String)> = mentions
            .iter()
            .map(|mention| (mention.span, graph.concept(mention.concept).to_owned()))
            .collect();
        prop_assert_eq!(found, naive::link(&graph, &text, &config));
    }

    #[test]
    fn the_lemmas_of_a_span_are_the_lemmas_of_its_concept(
        words in prop::collection::vec("\\PC{1,6}|[a-zA-Z’']{1,8}", 1..8),
        start in 0..6usize,
    ) {
        let lexicon = Lexicon::english();
        let text = words.join(" ");
        // A part of the text is a concept, so that there is something to find.
        let concept: Vec<&str> = text.unicode_words().skip(start).take(2).collect();
        let graph = graph_of(&[(&concept.join(" "), 2), (&words[0], 2)]);
        for mention in link(graph.view(), [(lexicon, &*text)], &LinkingConfig::default()) {
            let span = mention.span.of(&text).expect("a span inside its text");
            prop_assert_eq!(lexicon.key(span), lexicon.key(graph.concept(mention.concept)));
            prop_assert_eq!(lexicon.words(span).len(), usize::from(mention.words));
        }
    }
}

pub(super) mod chinese {
    use super::*;
    use crate::language::Lexicon;

    pub(in super::super) fn graph_of(concepts: &[(&str, &str, u32)]) -> Graph {
        let facts = concepts.iter().flat_map(|&(concept, language, facts)| {
            (0..facts).map(move |number| ImportedFact {
                language: language.to_owned(),
                ..ImportedFact::new(concept, "RelatedTo", &format!("zzz{number}zzz"), 1.0)
            })
        });
        Graph::from_facts(facts)
    }

    fn check(text: &str, expected: &[&str]) {
        let graph = graph_of(&[
            ("故宫", "zh", 9),
            ("頤和園", "zh", 3),
            ("百雅轩798艺术中心", "zh", 4),
            ("观复博物馆", "zh", 4),
            ("博物馆", "zh", 40),
            ("周边", "zh", 3),
            ("飗飖", "zh", 2),
            ("猫", "zh", 12),
            ("轩", "zh", 3),
            ("的", "zh", 90),
            ("知道", "zh", 20),
            ("我的家", "zh", 3),
            ("3小时", "zh", 30),
            ("1978", "zh", 30),
            ("T恤", "zh", 2),
            ("鸟巢（国家体育场）", "zh", 2),
            ("中国", "zh", 1_100),
            ("wifi", "zh", 3),
            ("coffee", "en", 30),
            ("ice cream", "en", 3),
        ]);
        assert_eq!(linked(&graph, &[text], &LinkingConfig::default()), expected, "{text}");
    }

    #[test]
    fn the_longest_match_over_segmented_words_is_meant() {
        check("你知道观复博物馆吗？", &["观复博物馆=观复博物馆"]);
        check("故宫的周边有博物馆", &["故宫=故宫", "周边=周边", "博物馆=博物馆"]);
        check("百雅轩798艺术中心在飗飖", &["百雅轩798艺术中心=百雅轩798艺术中心", "飗飖=飗飖"]);
        check("鳥巢(國家體育場)很大", &["鳥巢(國家體育場=鸟巢（国家体育场）"]);
        check("観，故。宫", &[]);
    }

    #[test]
    fn both_scripts_and_widths_name_the_same_concept() {
        check("故宮和颐和园", &["故宮=故宫", "颐和园=頤和園"]);
        check("百雅軒７９８藝術中心", &["百雅軒７９８藝術中心=百雅轩798艺术中心"]);
        check("买Ｔ恤", &["Ｔ恤=t恤"]);
    }

    #[test]
    fn words_that_say_nothing_are_left_out() {
        check("我知道中国的", &[]);
        check("玩了3小时，1978年", &[]);
        // A character with many facts, and one without.
        check("我有一只猫", &["猫=猫"]);
        check("这是轩", &[]);
        check("去我的家", &[]);
    }

    #[test]
    fn what_stands_in_the_other_script_is_linked_in_its_language() {
        check(
            "我想喝coffee，去故宫吃Ice Cream",
            &["coffee=coffee", "故宫=故宫", "Ice Cream=ice cream"],
        );
        check("Is there wifi in 故宮?", &["故宮=故宫"]);
        check("这里有WIFI吗", &["WIFI=wifi"]);
    }

    #[test]
    fn a_turn_that_names_its_language_is_linked_in_it() {
        let graph = graph_of(&[("wifi", "zh", 3), ("wi fi", "en", 3)]);
        let link = |lexicon, text| {
            let mentions = link(graph.view(), [(lexicon, text)], &LinkingConfig::default());
            mentions.into_iter().map(|m| graph.concept(m.concept).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(link(Lexicon::chinese(), "Wi-Fi?"), ["wifi"]);
        assert_eq!(link(Lexicon::english(), "Wi-Fi?"), ["wi fi"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_key_of_a_span_is_the_key_of_its_concept_in_its_language(
            text in crate::language::tests::chinese::any_chinese(),
            start in 0..6usize,
            length in 1..4usize,
        ) {
            // A part of the text is a concept, so that there is something to find.
            let words = Lexicon::chinese().words(&text);
            let part: String = words
                .iter()
                .skip(start)
                .take(length)
                .filter_map(|word| word.span.of(&text))
                .collect();
            let graph = graph_of(&[(&part, "zh", 20), ("故宫", "zh", 2), ("coffee", "en", 2)]);
            let config = LinkingConfig::default();
            let mut end = 0;
            for mention in link(graph.view(), [(Lexicon::of_text(&text), &*text)], &config) {
                let concept = graph.concept(mention.concept);
                let lexicon = Lexicon::for_language(graph.language(mention.concept)).unwrap();
                let span = mention.span.of(&text).expect("a span inside its text");
                prop_assert_eq!(lexicon.key(span), lexicon.key(concept));
                prop_assert!(mention.span.start >= end, "mentions overlap");
                end = mention.span.end;
            }
        }
    }
}
