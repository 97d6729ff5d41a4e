use proptest::prelude::*;

use super::*;

fn lemma(word: &str) -> String {
    Lexicon::english().lemma(word).into_owned()
}

#[test]
fn forms_lead_to_their_lemmas() {
    for (form, expected) in [("dogs", "dog"), ("making", "make")] {
        assert_eq!(lemma(form), expected, "{form}");
    }
}

proptest! {
    #[test]
    fn a_lemma_is_its_own_lemma(word in "[a-z']{1,12}") {
        let once = lemma(&word);
        prop_assert_eq!(lemma(&once), once);
    }
}
