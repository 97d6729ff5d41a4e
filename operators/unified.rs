//! Converts the dialogue to the form that the unified model takes.

use turnstream_ports::model::unified::Exchange;
use turnstream_schemas::Speaker;

use crate::flow::TurnContext;

/// Returns the exchanges up to the current turn. Successive utterances of one side are joined;
/// responses before the user's first utterance are left out.
pub fn exchanges(context: &TurnContext) -> Vec<Exchange> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    for said in &context.dialogue {
        let text = said.text.trim();
        match (said.speaker, exchanges.last_mut()) {
            (Speaker::User, Some(Exchange { user, response: None })) => {
                user.push(' ');
                user.push_str(text);
            }
            (Speaker::User, _) => {
                exchanges.push(Exchange { user: text.to_owned(), response: None });
            }
            (Speaker::System, Some(Exchange { response: Some(response), .. })) => {
                response.push(' ');
                response.push_str(text);
            }
            (Speaker::System, Some(last)) => last.response = Some(text.to_owned()),
            (Speaker::System, None) => {}
        }
    }
    exchanges
}

#[cfg(test)]
mod tests {
    use turnstream_ports::model::unified::{evidence_text, tenths};
    use turnstream_schemas::{Score, SourceKind};

    use super::*;
    use crate::testing::{context, document};

    #[test]
    fn what_was_said_is_paired() {
        let lines = ["s: Hello.", "u: One?", "u: Two?", "s: Yes.", "s: And no.", "u: Three?"];
        let [first, last] = &exchanges(&context(&lines))[..] else { panic!("two exchanges") };
        assert_eq!((&*first.user, first.response.as_deref()), ("One? Two?", Some("Yes. And no.")));
        assert_eq!((&*last.user, last.response.as_deref()), ("Three?", None));
    }

    #[test]
    fn a_document_is_read_with_its_title() {
        let mut found = document("documents", "d", "Free parking.", 0.46);
        assert_eq!(evidence_text(&found, SourceKind::Documents).text, "Free parking.");
        if let Some(passage) = &mut found.document {
            passage.title = "Ashley Hotel".to_owned();
        }
        let read = evidence_text(&found, SourceKind::Documents);
        assert_eq!(
            (&*read.text, &*read.columns[0].name, &*read.columns[0].value),
            ("Ashley Hotel: Free parking.", "name", "Ashley Hotel")
        );
        assert_eq!([0.0, 0.46, 1.0].map(|it| tenths(Score::new(it))), [0, 5, 10]);
    }
}
