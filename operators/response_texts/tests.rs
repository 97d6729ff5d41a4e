use super::*;
use crate::decision::DecisionTexts;
use crate::testing::context;

fn texts() -> ResponseTexts {
    DecisionTexts::default().response_texts()
}

fn asking(names: &[&str], is_chinese: bool, are_titles: bool) -> String {
    let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
    texts().asking[usize::from(is_chinese)].about(&names, are_titles)
}

#[test]
fn a_choice_is_recognised_by_its_place_or_its_words() {
    let names = ["Gifts or vouchers", "Refunds of deposits", "Can I cancel"];
    let asks = asking(&names, false, true);
    assert_eq!(asks, "Do you mean “Gifts or vouchers”, “Refunds of deposits” or “Can I cancel”?");
    for (choice, name) in [
        ("The second one, please.", Some(Some(1))),
        ("2", Some(Some(1))),
        ("the latter", Some(Some(2))),
        ("yes", Some(Some(0))),
        ("I mean refunds", Some(Some(1))),
        ("vouchers", Some(Some(0))),
        ("Yes, cancel", Some(Some(2))),
        ("neither of them", Some(None)),
        ("no", Some(None)),
        ("thanks", None),
        ("refunds or vouchers", None),
        ("when is a refund of the deposit paid?", None),
        ("the fourth", None),
        ("", None),
    ] {
        let turn =
            context(&["u: how do I get it back?", &format!("s: {asks}"), &format!("u: {choice}")]);
        let chosen = texts().chosen(&turn.dialogue).map(|it| it.name);
        let name = name.map(|at: Option<usize>| at.map(|at| names[at].to_owned()));
        assert_eq!(chosen, name, "{choice}");
    }
}

#[test]
fn a_chinese_choice_is_recognised_too() {
    let names = ["退款", "押金", "怎么取消"];
    let asks = asking(&names, true, true);
    for (choice, name) in [
        ("第二个", Some(Some(1))),
        ("押金吧", Some(Some(1))),
        ("是的", Some(Some(0))),
        ("我指取消的那个", Some(Some(2))),
        ("都不是", Some(None)),
        ("什么时候退押金？", None),
    ] {
        let turn = context(&["u: 能拿回来吗", &format!("s: {asks}"), &format!("u: {choice}")]);
        let chosen = texts().chosen(&turn.dialogue).map(|it| it.name);
        let name = name.map(|at: Option<usize>| at.map(|at| names[at].to_owned()));
        assert_eq!(chosen, name, "{choice}");
    }
}

#[test]
fn a_choice_is_read_as_the_question_that_it_belongs_to() {
    let asks = format!("s: {}", asking(&["Bergen", "Oslo lamp"], false, false));
    let lines = ["u: a lamp", "s: Lovely.", "u: how bright is it?", &asks, "u: Oslo"];
    let turn = context(&lines).with_choice(&texts());
    assert_eq!(turn.completed_query(), "how bright is it? (Oslo lamp)");
    let question = turn.question(&texts());
    assert_eq!(question.utterance, "how bright is it?");
    assert_eq!(question.user_before.as_deref(), Some("a lamp"));
    assert_eq!(question.system_before.as_deref(), Some("Lovely."));

    // Who asks something else instead is not answered by what was asked about.
    let lines = ["u: how bright is it?", &asks, "u: do you sell bulbs?"];
    let turn = context(&lines).with_choice(&texts());
    assert_eq!((&turn.chosen, &turn.reconstructed), (&None, &None));
    let question = turn.question(&texts());
    assert_eq!(question.utterance, "do you sell bulbs?");
    assert_eq!(question.user_before.as_deref(), Some("how bright is it?"));
    assert_eq!(question.system_before, None);
}
