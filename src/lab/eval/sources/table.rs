//! Lists the settings of UniMS-RAG's tables and figures, one row each.

use super::{FindBy, PlanBy, Setting};

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRow {
    /// The row's name.
    pub name: &'static str,
    /// The measured setting.
    pub setting: Setting,
}

/// Returns all rows: retrievers, one to three pieces, self-refinement by α and by rounds (from
/// three pieces, as in the paper), oracles and ablations.
pub fn rows() -> Vec<SourceRow> {
    let one = Setting::default();
    let three = Setting { pieces: 3, ..one };
    let refined = |replaced, steps| Setting { replaced, steps, ..three };
    let rows = [
        ("by the fusion", one),
        ("by itself", Setting { retrieval: FindBy::Model, ..one }),
        ("two pieces", Setting { pieces: 2, ..one }),
        ("three pieces", three),
        ("refined, α 1", refined(1, 1)),
        ("refined, α 2", refined(2, 1)),
        ("refined, α 3", refined(3, 1)),
        ("refined, two steps", refined(1, 2)),
        ("refined, three steps", refined(1, 3)),
        ("gold plan", Setting { plan: PlanBy::Gold, ..one }),
        ("gold retrieval", Setting { retrieval: FindBy::Gold, ..one }),
        ("gold plan and retrieval", Setting { plan: PlanBy::Gold, retrieval: FindBy::Gold, ..one }),
        ("every source", Setting { plan: PlanBy::Every, ..one }),
        ("no source", Setting { plan: PlanBy::None, ..one }),
    ];
    rows.map(|(name, setting)| SourceRow { name, setting }).to_vec()
}
