//! Loads the judge's prompts from files: the task, and under `[answer]` the form of the answer. The
//! material goes between the two, each part in its fence. English and Chinese.

use turnstream_operators::prompted::fence::{NOTE_CHINESE, NOTE_ENGLISH};

use crate::eval::generation::tokens::Tokenisation;

/// A question to the judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The name in results.
    pub name: &'static str,
    /// The instructions that describe the judge's task.
    pub system: String,
    /// The form of the answer.
    pub answer: &'static str,
    /// CRC-32 of the file in hexadecimal, which identifies the prompt.
    pub hash: String,
}

/// All questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompts {
    /// How engaging the response is.
    pub engagement: Prompt,
    /// How informative the response is, and its overall quality.
    pub quality: Prompt,
    /// Which evidence helps.
    pub relevance: Prompt,
    /// The statements of the response.
    pub statements: Prompt,
    /// Which statements the evidence supports.
    pub support: Prompt,
    /// The utterances that the response would answer.
    pub questions: Prompt,
    /// The words around the questions.
    pub(super) wording: Wording,
}

/// The words around the questions, in one language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wording {
    /// The label of the user.
    pub user: &'static str,
    /// The label of the system.
    pub system: &'static str,
    /// Introduces the reason why an answer is unreadable.
    pub unreadable: &'static str,
    /// The instruction after the reason.
    pub again: &'static str,
    note: &'static str,
}

const ENGLISH: Wording = Wording {
    user: "user: ",
    system: "system: ",
    unreadable: "This was your answer, and it cannot be read: ",
    again: ". Answer again, rightly.",
    note: NOTE_ENGLISH,
};

const CHINESE: Wording = Wording {
    user: "用户：",
    system: "系统：",
    unreadable: "这是你刚才的回答，无法读取：",
    again: "。请重新正确地回答。",
    note: NOTE_CHINESE,
};

fn read(name: &'static str, file: &'static str, note: &str) -> Prompt {
    let (task, answer) = file.split_once("[answer]").unwrap_or((file, ""));
    Prompt {
        name,
        system: format!("{}\n\n{note}", task.trim()),
        answer: answer.trim(),
        hash: format!("{:08x}", crc32fast::hash(file.as_bytes())),
    }
}

impl Prompts {
    /// Returns the shipped prompts in the language of the responses.
    pub fn shipped(language: Tokenisation) -> Self {
        macro_rules! prompts {
            ($folder:literal, $wording:expr, $($name:ident)*) => {
                Self {
                    $($name: read(
                        stringify!($name),
                        include_str!(concat!("../../prompts/", $folder, "/", stringify!($name), ".txt")),
                        $wording.note,
                    ),)*
                    wording: $wording,
                }
            };
        }
        match language {
            Tokenisation::English => {
                prompts!("en", ENGLISH, engagement quality relevance statements support questions)
            }
            Tokenisation::Chinese => {
                prompts!("zh", CHINESE, engagement quality relevance statements support questions)
            }
        }
    }

    /// Returns all prompts.
    pub fn all(&self) -> [&Prompt; 6] {
        let Self { engagement, quality, relevance, statements, support, questions, .. } = self;
        [engagement, quality, relevance, statements, support, questions]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prompt_has_a_task_an_answer_and_a_hash_of_its_own() {
        let mut hashes = std::collections::BTreeSet::new();
        for (language, note) in
            [(Tokenisation::English, NOTE_ENGLISH), (Tokenisation::Chinese, NOTE_CHINESE)]
        {
            for prompt in Prompts::shipped(language).all() {
                let name = prompt.name;
                let task = prompt.system.strip_suffix(note).expect(name);
                assert!(task.len() > 100, "{name}");
                assert!(prompt.answer.contains('{'), "{name} shows its JSON");
                assert_eq!(Tokenisation::of_corpus([task]), language, "{name}");
                assert!(hashes.insert(prompt.hash.clone()), "{name}");
            }
        }
    }
}
