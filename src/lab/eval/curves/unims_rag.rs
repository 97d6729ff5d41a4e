//! UniMS-RAG on KBP: how many pieces of evidence of each source a response is worded from, and how
//! often it is refined.

use turnstream_operators::judge::Judge;

use super::{Curves, Figures, Line, Point, Sweep};
use crate::eval::sources::{Asked, Case, FindBy, Setting, SourceFigures, SourcesError, evaluate};

/// Pieces of evidence of each source; the paper has one to three.
const PIECES: [u8; 5] = [1, 2, 3, 4, 5];
/// Rounds of self-refinement, and α, the pieces that a round replaces at most.
const ROUNDS: [u8; 4] = [0, 1, 2, 3];
/// The pieces that a refined response begins with, as in the paper.
const REFINED: usize = 3;

/// Returns how many responses a turn gets.
pub fn settings() -> usize {
    2 * PIECES.len() + 2 * ROUNDS.len()
}

/// Measures all settings; `done` is called after each response.
///
/// # Errors
/// The model or the judge fails.
pub fn curves(
    cases: &[Case],
    asked: &mut Asked<'_>,
    judge: &Judge,
    done: &dyn Fn(),
) -> Result<Curves, SourcesError> {
    let mut line = |name: &str, at: &[u8], setting: &dyn Fn(u8) -> Setting| {
        let points = at.iter().map(|at| {
            let (measured, _) = evaluate(cases, &setting(*at), asked, judge, done)?;
            Ok(Point { at: f64::from(*at), figures: figures(&measured) })
        });
        let points = points.collect::<Result<Vec<_>, SourcesError>>()?;
        Ok::<_, SourcesError>(Line { name: name.to_owned(), points })
    };
    let one = Setting::default();
    let pieces = |retrieval| move |at: u8| Setting { pieces: at.into(), retrieval, ..one };
    let rounds = |at: u8| Setting { pieces: REFINED, steps: at.into(), ..one };
    let replaced = |at: u8| Setting { replaced: at.into(), ..rounds(1) };
    let counts = vec![
        line("found by the fusion", &PIECES, &pieces(FindBy::Fusion))?,
        line("found by the model itself", &PIECES, &pieces(FindBy::Model))?,
    ];
    let refined = vec![
        line("rounds, one piece replaced in each", &ROUNDS, &rounds)?,
        line("pieces replaced in one round", &ROUNDS, &replaced)?,
    ];
    let about = format!("{} turns of KBP.", cases.len());
    let sweep = |title: &str, setting, lines| Sweep {
        title: title.to_owned(),
        about: about.clone(),
        setting,
        lines,
    };
    Ok(Curves {
        method: "unims-rag",
        sweeps: vec![
            sweep("Pieces of evidence of each source", "pieces", counts),
            sweep("Self-refinement, from three pieces", "rounds or pieces", refined),
        ],
        comparisons: Vec::new(),
    })
}

/// Returns the figures by name.
pub(super) fn figures(measured: &SourceFigures) -> Figures {
    Figures::from([
        ("bleu_1", measured.bleu_1),
        ("rouge_l", measured.rouge_l),
        ("persona_consistency", measured.persona_consistency),
        ("knowledge_consistency", measured.knowledge_consistency),
        ("confidence", measured.confidence),
    ])
}
