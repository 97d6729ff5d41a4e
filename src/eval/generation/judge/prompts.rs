//! What the judge is asked, as files: the task, and under `[answer]` how to answer. The material
//! stands between the two, each part behind its fence.

use turnstream_operators::prompted::fence::NOTE_ENGLISH;

/// A question to the judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Its name in results.
    pub name: &'static str,
    /// What the judge is told about its task.
    pub system: String,
    /// How it is to answer.
    pub answer: &'static str,
    /// CRC-32 of the file, in hexadecimal: which prompt this is.
    pub hash: String,
}

/// All questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompts {
    /// How engaging is the response?
    pub engagement: Prompt,
    /// How informative is it, and how good in all?
    pub quality: Prompt,
    /// Which evidence is of use?
    pub relevance: Prompt,
    /// What does the response state?
    pub statements: Prompt,
    /// Which of that does the evidence bear out?
    pub support: Prompt,
    /// What would the response answer?
    pub questions: Prompt,
}

fn read(name: &'static str, file: &'static str) -> Prompt {
    let (task, answer) = file.split_once("[answer]").unwrap_or((file, ""));
    Prompt {
        name,
        system: format!("{}\n\n{NOTE_ENGLISH}", task.trim()),
        answer: answer.trim(),
        hash: format!("{:08x}", crc32fast::hash(file.as_bytes())),
    }
}

impl Prompts {
    /// Those that ship.
    pub fn shipped() -> Self {
        let of = read;
        Self {
            engagement: of("engagement", include_str!("../../prompts/en/engagement.txt")),
            quality: of("quality", include_str!("../../prompts/en/quality.txt")),
            relevance: of("relevance", include_str!("../../prompts/en/relevance.txt")),
            statements: of("statements", include_str!("../../prompts/en/statements.txt")),
            support: of("support", include_str!("../../prompts/en/support.txt")),
            questions: of("questions", include_str!("../../prompts/en/questions.txt")),
        }
    }

    /// All of them.
    pub fn all(&self) -> [&Prompt; 6] {
        let Self { engagement, quality, relevance, statements, support, questions } = self;
        [engagement, quality, relevance, statements, support, questions]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prompt_has_a_task_an_answer_and_a_hash_of_its_own() {
        let prompts = Prompts::shipped();
        let mut hashes = std::collections::BTreeSet::new();
        for prompt in prompts.all() {
            assert!(prompt.system.len() > NOTE_ENGLISH.len() + 100, "{}", prompt.name);
            assert!(prompt.answer.contains('{'), "{} shows its JSON", prompt.name);
            assert!(hashes.insert(&prompt.hash), "{}", prompt.name);
        }
    }
}
