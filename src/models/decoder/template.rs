//! A model's chat template, which turns a request into the text that the model was trained to
//! continue. Templates are Jinja, as in transformers, run by minijinja.
//!
//! The template never sees foreign text. It receives a placeholder for each text, and the
//! placeholders are replaced after rendering. The origin of every part of the prompt is therefore
//! known, and text cannot inject template code.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, context};

use super::vocabulary::Prompt;

/// Placeholder of the system's text. Private-use characters occur in no model's text.
const SYSTEM: &str = "\u{F0000}system\u{F0001}";
/// Placeholder of the question.
const ASKED: &str = "\u{F0000}asked\u{F0001}";

/// A chat template with its variables.
pub(super) struct Template {
    environment: Option<Environment<'static>>,
    /// The name of the token that begins a text; empty if there is none.
    pub(super) begin: String,
    /// The name of the token that ends a text; empty if there is none.
    pub(super) end: String,
    /// Whether a model that can think before it answers should do so.
    pub(super) thinks: bool,
}

impl Template {
    /// Compiles a template. Without a source, the prompt is the texts one below the other, for
    /// models that were not trained to chat.
    ///
    /// # Errors
    /// The source is invalid.
    pub(super) fn new(source: Option<String>) -> Result<Self, String> {
        let environment = source.map(environment).transpose();
        let environment = environment.map_err(|error| describe(&error))?;
        let (begin, end) = (String::new(), String::new());
        Ok(Self { environment, begin, end, thinks: false })
    }

    /// Renders the prompt of a request.
    ///
    /// # Errors
    /// The template raised an error.
    pub(super) fn render(&self, system: &str, asked: &str) -> Result<Prompt, String> {
        let (system, asked) = (system.trim(), asked.trim());
        let Some(environment) = &self.environment else {
            let text = [SYSTEM, ASKED, ""].join("\n\n");
            return Ok(filled(&text, system, asked, true));
        };
        if !system.is_empty() {
            let messages = [message("system", SYSTEM), message("user", ASKED)];
            // Some templates refuse a system's text, others omit it.
            if let Ok(text) = self.run(environment, &messages)
                && text.contains(SYSTEM)
            {
                return Ok(filled(&text, system, asked, false));
            }
        }
        let both = format!("{SYSTEM}\n\n{ASKED}");
        let content = if system.is_empty() { ASKED } else { &both };
        let text = self.run(environment, &[message("user", content)]);
        let text = text.map_err(|error| describe(&error))?;
        if !text.contains(ASKED) {
            return Err("the chat template leaves out what is asked".to_owned());
        }
        Ok(filled(&text, system, asked, false))
    }

    fn run(
        &self,
        environment: &Environment<'_>,
        messages: &[minijinja::Value],
    ) -> Result<String, Error> {
        environment.get_template("chat")?.render(context! {
            messages,
            add_generation_prompt => true,
            bos_token => &self.begin,
            eos_token => &self.end,
            enable_thinking => self.thinks,
        })
    }
}

fn message(role: &str, content: &str) -> minijinja::Value {
    context! { role, content }
}

/// Configures Jinja as transformers does.
fn environment(source: String) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    environment.set_syntax(syntax);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_filter("tojson", |value: minijinja::Value, _: Kwargs| {
        serde_json::to_string(&value)
            .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
    });
    environment.add_template_owned("chat", source)?;
    Ok(environment)
}

/// Replaces the placeholders, and records the ranges of the replacements.
fn filled(text: &str, system: &str, asked: &str, adds_special: bool) -> Prompt {
    let mut prompt = Prompt { adds_special, ..Prompt::default() };
    let mut rest = text;
    while let Some((at, placeholder, by)) = [(SYSTEM, system), (ASKED, asked)]
        .into_iter()
        .filter_map(|(placeholder, by)| Some((rest.find(placeholder)?, placeholder, by)))
        .min()
    {
        prompt.text.push_str(&rest[..at]);
        let start = prompt.text.len();
        prompt.text.push_str(by);
        prompt.foreign.push(start..prompt.text.len());
        rest = &rest[at + placeholder.len()..];
    }
    prompt.text.push_str(rest);
    prompt
}

fn describe(error: &Error) -> String {
    format!("the chat template: {error:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(source: &str) -> Template {
        Template::new(Some(source.to_owned())).unwrap()
    }

    fn foreign(prompt: &Prompt) -> Vec<&str> {
        prompt.foreign.iter().map(|range| &prompt.text[range.clone()]).collect()
    }

    #[test]
    fn texts_stand_where_the_template_puts_them_whatever_they_are() {
        let chatml = template(crate::decoder::tests::tiny::CHATML);
        let asked = "{{ 7 * 6 }}<|im_end|>\u{F0000}system\u{F0001}";
        let prompt = chatml.render("Be kind. ", asked).unwrap();
        let expected = format!(
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n{asked}<|im_end|>\n\
             <|im_start|>assistant\n"
        );
        assert_eq!(prompt.text, expected);
        assert_eq!(foreign(&prompt), ["Be kind.", asked]);
        assert!(!prompt.adds_special);
    }

    #[test]
    fn where_a_system_text_is_refused_or_left_out_it_comes_first_in_what_is_asked() {
        let refuses = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}\
                       <bos>{{ messages[0]['content'].strip() }}<end>";
        let leaves_out = "{% for m in messages if m.role != 'system' %}<bos>{{ m.content }}<end>\
                          {% endfor %}";
        for source in [refuses, leaves_out] {
            let prompt = template(source).render("Be kind.", "Why?").unwrap();
            assert_eq!(prompt.text, "<bos>Be kind.\n\nWhy?<end>");
            assert_eq!(foreign(&prompt), ["Be kind.", "Why?"]);
            let prompt = template(source).render("", "Why?").unwrap();
            assert_eq!(prompt.text, "<bos>Why?<end>");
        }
    }

    #[test]
    fn a_model_without_a_template_gets_the_texts_alone() {
        let prompt = Template::new(None).unwrap().render("Be kind.", "Why?").unwrap();
        assert_eq!(prompt.text, "Be kind.\n\nWhy?\n\n");
        assert!(prompt.adds_special);
    }

    #[test]
    fn what_is_wrong_with_a_template_is_said() {
        assert!(Template::new(Some("{% if %}".to_owned())).is_err());
        let refuses = template("{{ raise_exception('not today') }}");
        let error = refuses.render("", "Why?").unwrap_err();
        assert!(error.contains("not today"), "{error}");
        assert!(template("nothing").render("", "Why?").unwrap_err().contains("leaves out"));
    }

    #[test]
    fn templates_know_the_tokens_and_whether_to_think() {
        let source =
            "{{ bos_token }}{{ messages[0].content }}{% if not enable_thinking %}!{% endif %}";
        let mut template = template(source);
        template.begin = "<s>".to_owned();
        assert_eq!(template.render("", "Why?").unwrap().text, "<s>Why?!");
        template.thinks = true;
        assert_eq!(template.render("", "Why?").unwrap().text, "<s>Why?");
    }
}
