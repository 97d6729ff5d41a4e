//! `turnstream demo`: conversations through the whole engine, explained turn by turn.

/// Watch conversations go through the whole engine: per turn the gate's decision, what is asked
/// of the graph, the facts chosen, the history used and evicted, and the response.
///
/// Needs no configuration, no network and no model: the log is embedded, and the facts are those
/// of the pack that the program carries.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream demo
  turnstream demo --conversation chatty --pause
  turnstream demo --chat
  turnstream demo --json")]
pub struct Args {
    /// Type the turns yourself; an empty line or Ctrl-D ends it.
    #[arg(long, conflicts_with_all = ["conversation", "pause"])]
    pub chat: bool,
    /// Show only the conversation of that name.
    #[arg(long, value_name = "NAME")]
    pub conversation: Option<String>,
    /// Wait for Enter after each turn.
    #[arg(long)]
    pub pause: bool,
    /// No colours, also on a terminal; the variable NO_COLOR does the same.
    #[arg(long)]
    pub no_color: bool,
    /// Print no explanation but one response record a line, and last one JSON object with counts.
    #[arg(long, conflicts_with = "pause")]
    pub json: bool,
}
