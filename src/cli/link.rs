//! `turnstream link`: shows the concepts of the graph that a text or the turns of a log name, and
//! those that search finds if a text names none.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;
use turnstream_formats::{Format, LoggedItem};
use turnstream_knowledge::Graph;
use turnstream_knowledge::language::Lexicon;
use turnstream_knowledge::linking::link;
use turnstream_knowledge::search::search;
use turnstream_operators::gate::GateConfig;
use turnstream_schemas::{Span, Speaker, Turn, Via};

use turnstream_console::{Exit, InputRefused, load_config, print_json};
use turnstream_sources::knowledge;

/// Show the concepts that a text, or each turn of a log, names.
///
/// If a text names none, concepts are searched for, as in the gate, unless gate.search.enabled is
/// false.
///
/// Prints a line for each concept: dialogue, turn, first byte, one past the last byte, concept,
/// informativeness, how it was found (exact; lemmas or ngrams with the similarity, if it was
/// searched for), and the text with the mention in double brackets. Each turn is linked alone, with
/// the configuration's bounds.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream link \"I woke up and made coffee\"
  turnstream link \"do you like expresso\"
  turnstream link --data validation.jsonl.gz --format dailydialog --sample 200
  turnstream link --data validation.jsonl.gz --format dailydialog --only searched
  turnstream link --data travel-dev.jsonl.gz --format kdconv --snapshot travel.snapshot --json")]
pub struct LinkArgs {
    /// The text.
    #[arg(value_name = "TEXT", required_unless_present = "data", conflicts_with = "data")]
    pub text: Option<String>,
    /// A log whose turns are linked: JSON lines, plain or gzip; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// The log's shape.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, requires = "data")]
    pub format: Format,
    /// The snapshot to link with, or "pack" for the shipped one; the configuration's if not given.
    #[arg(long, value_name = "SNAPSHOT")]
    pub snapshot: Option<String>,
    /// The configuration; the defaults if not given. Only knowledge.snapshot, gate.linking and
    /// gate.search are read.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Show, and sample from, only concepts that were named exactly, or only those that were
    /// searched for.
    #[arg(long, value_enum, value_name = "WHICH")]
    pub only: Option<Which>,
    /// Show a sample of this many links: those with the smallest checksums of seed, dialogue, turn
    /// and place. The same log, graph and seed give the same sample.
    #[arg(long, value_name = "N")]
    pub sample: Option<usize>,
    /// The seed of the sample.
    #[arg(long, value_name = "SEED", default_value_t = 1, requires = "sample")]
    pub seed: u32,
    /// Print one JSON object with the counts and the links, without the texts.
    #[arg(long)]
    pub json: bool,
}

/// How a concept was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Which {
    /// The text names it
    Exact,
    /// It was searched for
    Searched,
}

/// One link.
#[derive(Debug, Serialize)]
struct Link {
    dialogue: String,
    turn: String,
    span: Span,
    concept: String,
    language: String,
    informativeness: f32,
    via: Via,
    /// The similarity of the words to the concept, if it was searched for.
    #[serde(skip_serializing_if = "Option::is_none")]
    similarity: Option<f32>,
    #[serde(skip)]
    text: String,
}

/// The report for programs.
#[derive(Debug, Default, Serialize)]
struct Linked {
    /// Turns read.
    turns: u64,
    /// Turns that name at least one concept.
    turns_with_links: u64,
    /// Turns that name none, and for which the search found some.
    turns_searched: u64,
    /// Links of all turns.
    links: u64,
    /// Concepts that the search found.
    searched: u64,
    /// The links shown: all, or the sample.
    shown: Vec<Link>,
}

/// Links the text or the log.
///
/// # Errors
/// The configuration or the snapshot cannot be used, or the log cannot be read.
pub fn execute(args: &LinkArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let config = load_config(args.config.as_deref())?.value;
    let snapshot = args.snapshot.clone().unwrap_or_else(|| config.knowledge.snapshot.into());
    let graph = knowledge::open(&snapshot)?;
    let mut linked = Linked::default();
    let mut enter = |turn: &Turn| linked.enter(turn, &graph, &config.gate);
    match (&args.text, &args.data) {
        (Some(text), _) => enter(&Turn::new("text", Speaker::User, text)),
        (None, Some(data)) => {
            let refused = |error: turnstream_formats::FormatError| {
                InputRefused::new(error.to_string(), "give a readable log and its --format")
                    .caused_by(error)
            };
            for item in turnstream_formats::open(args.format, data).map_err(refused)? {
                match item {
                    Ok(LoggedItem::Turn(logged)) => enter(&logged.turn),
                    Ok(LoggedItem::Raw { line, bytes }) => {
                        let turn = serde_json::from_slice(&bytes);
                        enter(&turn.with_context(|| format!("line {line} is not a turn"))?);
                    }
                    Err(error) if error.ends() => return Err(refused(error).into()),
                    Err(error) => tracing::warn!(%error, "left out"),
                }
            }
        }
        (None, None) => {}
    }
    if let Some(which) = args.only {
        linked.shown.retain(|link| link.via.is_exact() == (which == Which::Exact));
    }
    if let Some(sample) = args.sample {
        linked.draw(sample, args.seed);
    }
    if args.json {
        print_json(out, &linked)?;
    } else {
        linked.say(out)?;
    }
    Ok(Exit::Success)
}

impl Link {
    /// How the concept was found, and its similarity.
    fn found(&self) -> String {
        let via = match self.via {
            Via::Exact => "exact",
            Via::Lemmas => "lemmas",
            Via::Ngrams => "ngrams",
        };
        match self.similarity {
            Some(similarity) => format!("{via} {similarity:.2}"),
            None => via.to_owned(),
        }
    }
}

impl Linked {
    fn enter(&mut self, turn: &Turn, graph: &Graph, config: &GateConfig) {
        let (lexicon, text) = (Lexicon::of_turn(turn), turn.text.as_str());
        let linked = link(graph.view(), [(lexicon, text)], &config.linking);
        let least = config.linking.min_informativeness;
        let found = search(graph.view(), (0, lexicon, text), &linked, least, &config.search);
        self.turns += 1;
        self.turns_with_links += u64::from(!linked.is_empty());
        self.turns_searched += u64::from(!found.mentions.is_empty());
        self.links += linked.len() as u64;
        self.searched += found.mentions.len() as u64;
        self.shown.extend(linked.into_iter().chain(found.mentions).map(|mention| Link {
            dialogue: turn.conversation_id.as_str().to_owned(),
            turn: turn.turn_id.as_ref().map_or("-", |id| id.as_str()).to_owned(),
            span: mention.span,
            concept: graph.concept(mention.concept).to_owned(),
            language: graph.language(mention.concept).to_owned(),
            informativeness: mention.informativeness,
            via: mention.via,
            similarity: (!mention.via.is_exact()).then_some(mention.similarity),
            text: turn.text.clone(),
        }));
    }

    /// Keeps a sample, in the order of the log.
    fn draw(&mut self, most: usize, seed: u32) {
        let rank = |link: &Link| {
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&seed.to_le_bytes());
            for part in [&link.dialogue, &link.turn] {
                hasher.update(part.as_bytes());
                hasher.update(&[0]);
            }
            hasher.update(&link.span.start.to_le_bytes());
            hasher.finalize()
        };
        let mut ranks: Vec<(u32, usize)> =
            self.shown.iter().enumerate().map(|(at, link)| (rank(link), at)).collect();
        ranks.sort_unstable();
        let mut kept: Vec<bool> = vec![false; self.shown.len()];
        ranks.iter().take(most).for_each(|(_, at)| kept[*at] = true);
        let mut kept = kept.into_iter();
        self.shown.retain(|_| kept.next().unwrap_or(false));
    }

    fn say(&self, out: &mut dyn Write) -> std::io::Result<()> {
        for link in &self.shown {
            let Span { start, end } = link.span;
            let parts = [
                link.text.get(..start as usize),
                link.span.of(&link.text),
                link.text.get(end as usize..),
            ]
            .map(|part| part.unwrap_or_default().replace(['\t', '\n', '\r'], " "));
            writeln!(
                out,
                "{}\t{}\t{start}\t{end}\t{}\t{:.2}\t{}\t{}[[{}]]{}",
                link.dialogue,
                link.turn,
                link.concept,
                link.informativeness,
                link.found(),
                parts[0],
                parts[1],
                parts[2]
            )?;
        }
        let Self { turns, turns_with_links, turns_searched, links, searched, shown } = self;
        let shown = shown.len();
        eprintln!(
            "{turns} turns, {turns_with_links} with links, {links} links; {searched} concepts \
             found by search for {turns_searched} other turns; {shown} shown"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(turn: u32) -> Link {
        Link {
            dialogue: "d".to_owned(),
            turn: turn.to_string(),
            span: Span { start: 0, end: 1 },
            concept: "c".to_owned(),
            language: "en".to_owned(),
            informativeness: 0.5,
            via: Via::Exact,
            similarity: None,
            text: String::new(),
        }
    }

    #[test]
    fn a_sample_is_fixed_by_its_seed_and_stays_when_the_log_grows_elsewhere() {
        let draw = |turns: u32, most, seed| {
            let mut linked = Linked { shown: (0..turns).map(link).collect(), ..Linked::default() };
            linked.draw(most, seed);
            linked.shown.into_iter().map(|link| link.turn).collect::<Vec<_>>()
        };
        let (first, again) = (draw(100, 10, 1), draw(100, 10, 1));
        assert_eq!((first.len(), &first), (10, &again));
        assert_ne!(first, draw(100, 10, 2));
        let more = draw(1000, 10, 1);
        assert!(
            more.iter().all(|turn| turn.parse::<u32>().unwrap() >= 100 || first.contains(turn))
        );
        assert_eq!(draw(3, 10, 1).len(), 3);
    }
}
