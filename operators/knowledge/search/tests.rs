use super::*;
use crate::language::has_han;
use crate::{Graph, ImportedFact};

const FACTS: &str = "
    coffee IsA drink 1
    coffee HasProperty bitter 1
    coffe_shop IsA shop 1
    coffe_shop UsedFor chat 1
    umbrella UsedFor rain 1
    umbrella IsA shelter 1
    ice_cream IsA dessert 1
    ice_cream HasProperty cold 1
    email IsA message 1
    email UsedFor contact 1
    toffee IsA sweet 1
    romeo_juliet IsA play 1
    romeo_juliet HasProperty sad 1
    rye IsA grain 1
    rye UsedFor bread 1
    北京市北辰东路15号 IsA 地址 1
    北京市北辰东路15号 AtLocation 北京 1
    北京市北辰西路甲 IsA 地址 1
    北京市北辰西路甲 AtLocation 北京 1
    故宫博物院 IsA 博物馆 1
    故宫博物院 AtLocation 北京 1
";

/// The facts, and a hub of 300 more, so that concepts are as informative as in a real graph.
fn graph() -> Graph {
    let told = FACTS.lines().filter(|line| !line.trim().is_empty()).map(|line| {
        let parts: Vec<String> =
            line.split_whitespace().map(|part| part.replace('_', " ")).collect();
        let [head, relation, tail, weight] = &parts[..] else { panic!("not a fact: {line}") };
        let language = if has_han(line) { "zh" } else { "en" }.to_owned();
        let fact = ImportedFact::new(head, relation, tail, weight.parse().unwrap());
        ImportedFact { language, ..fact }
    });
    let filler =
        (0..300).map(|at| ImportedFact::new("hubword", "RelatedTo", &format!("spoke {at}"), 1.0));
    let common = ["reply", "question"].map(|tail| ImportedFact {
        source: "cn4".to_owned(),
        ..ImportedFact::new("answer", "RelatedTo", tail, 1.0)
    });
    Graph::from_facts(told.chain(filler).chain(common))
}

fn found(text: &str) -> (Vec<(String, Via)>, Vec<String>) {
    let graph = graph();
    let view = graph.view();
    let said = (0, Lexicon::of_text(text), text);
    let found = search(view, said, &[], 0.15, &SearchConfig::default());
    let concept = |mention: &Mention| (view.concept(mention.concept).to_owned(), mention.via);
    (found.mentions.iter().map(concept).collect(), found.missing)
}

#[test]
fn slips_and_compounds_are_found_and_the_rest_is_missing() {
    let hit = |concept: &str, via| (vec![(concept.to_owned(), via)], Vec::<String>::new());
    assert_eq!(found("I like cofee."), hit("coffee", Via::Ngrams));
    assert_eq!(found("I like the coffe"), hit("coffee", Via::Ngrams));
    assert_eq!(found("my umbrela?"), hit("umbrella", Via::Ngrams));
    assert_eq!(found("an icecream"), hit("ice cream", Via::Lemmas));
    assert_eq!(found("an E-mail"), hit("email", Via::Lemmas));
    assert_eq!(found("北京故宫博物院"), hit("故宫博物院", Via::Ngrams));
    assert_eq!(found("What is a zorblax?"), (vec![], vec!["zorblax".to_owned()]));
    assert_eq!(found("my license is 5550123"), (vec![], vec!["license".to_owned()]));
    assert_eq!(found("Hello, how are you?"), (vec![], vec![]));
    // Function words are left out; spelled-out letters are not a word.
    assert_eq!(found("Romeo and Juliet!"), hit("romeo juliet", Via::Lemmas));
    assert_eq!(found("It is R-Y-E, sir.").0, []);
    // A word that seldom means its concept is not meant by a slip either.
    assert_eq!(found("an answerr"), (vec![], vec!["answerr".to_owned()]));
    // Another first letter makes another word, and a concept with digits is another address.
    assert_eq!(found("an imbrella").0, []);
    assert_eq!(found("地址是北京市北辰东路").0, []);
    assert_eq!(found("地址是北京市北辰西路"), hit("北京市北辰西路甲", Via::Ngrams));
}

#[test]
fn linked_words_are_neither_searched_nor_missing_and_stop_the_search() {
    let graph = graph();
    let text = "coffee cofee zorblax zorblax";
    let said = (Lexicon::english(), text);
    let linked = crate::linking::link(graph.view(), [said], &Default::default());
    assert_eq!(linked.len(), 1);
    let said = (0, Lexicon::english(), text);
    let found = search(graph.view(), said, &linked, 0.15, &SearchConfig::default());
    assert!(found.mentions.is_empty());
    assert_eq!(found.missing, ["cofee", "zorblax"]);
}

#[test]
fn bounds_hold() {
    let graph = graph();
    let text = "cofee, umbrela, zorblax";
    let search = |config: SearchConfig| {
        let found = search(graph.view(), (0, Lexicon::english(), text), &[], 0.15, &config);
        (found.mentions.len(), found.missing.len())
    };
    let config = SearchConfig::default;
    assert_eq!(search(config()), (2, 1));
    assert_eq!(search(SearchConfig { max_concepts: 1, ..config() }), (1, 2));
    assert_eq!(search(SearchConfig { max_phrases: 1, ..config() }), (1, 2));
    assert_eq!(search(SearchConfig { enabled: false, ..config() }), (0, 3));
    assert_eq!(search(SearchConfig { min_facts: 3, ..config() }), (0, 3));
    assert_eq!(search(SearchConfig { max_missing: 0, ..config() }), (2, 0));
}
