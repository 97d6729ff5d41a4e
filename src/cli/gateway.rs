//! `turnstream gateway`: HTTP in front of the topics, for chat front ends and agent desks.

use std::io::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use turnstream_console::{Usage, load_config, signals};
use turnstream_engine::config::LogKind;
use turnstream_gateway::{GatewayError, GatewayTopics, serve};
use turnstream_log::deliver::Delivery;
use turnstream_log::{Follower, LogError, Topic, kafka};

/// Connect chat front ends and agent desks to the engine by HTTP.
///
/// Writes what they send to the topic of turns and sends them what is committed. Runs beside
/// `turnstream run`, in as many processes as wanted. Supports OpenAI's chat completions. Serves
/// until SIGTERM or SIGINT.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  stopped cleanly
  1  failure while running, or the address is taken
  2  wrong usage or configuration: fix it first
  5  the broker cannot be reached, or the Kafka client cannot go on: restart, nothing is lost
  6  the log refuses us: topics, permissions, credentials

Requests, once it serves:
  curl localhost:8077/v1/conversations/c-17/turns -d '{\"text\": \"What is a violin?\"}'
  curl -N localhost:8077/v1/conversations/c-17/events
  curl localhost:8077/v1/conversations/c-17/release -X POST

Examples:
  turnstream gateway --config turnstream.toml")]
pub struct GatewayArgs {
    /// The configuration, as for run; the defaults if not given.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Serves until told to stop.
///
/// # Errors
/// The configuration is wrong, the address cannot be bound, or the log cannot be reached or refuses us.
pub fn execute(args: &GatewayArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let config = load_config(args.config.as_deref())?.value;
    if config.log.kind == LogKind::Embedded {
        let what = "only one process can use an embedded log";
        return Err(
            Usage::new(what, "set log.kind = \"kafka\"; `turnstream chat` needs no log").into()
        );
    }
    let stop = signals::stop_on_signals()?;
    let kafka = config.log.kafka.clone();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let minutes = i64::try_from(config.gateway.remember_minutes).unwrap_or(i64::MAX);
    let since_ms =
        i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(minutes.saturating_mul(60_000));
    let mut outcomes: Vec<(Topic, Box<dyn Follower>)> = Vec::new();
    for topic in [Topic::Responses, Topic::Recorded, Topic::DeadLetters] {
        let follower = kafka::follow_since(&kafka, topic, Some(since_ms.max(0)))?;
        outcomes.push((topic, Box::new(follower)));
    }
    // From the beginning, since a conversation may have waited for an agent for a long time.
    let conversations = kafka::follow_if_there(&kafka, Topic::Conversations, None)?;
    outcomes
        .extend(conversations.map(|it| (Topic::Conversations, Box::new(it) as Box<dyn Follower>)));
    if config.gateway.partials {
        // Earlier partial responses are of no use.
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let partials = kafka::follow_since(&kafka, Topic::Partials, Some(now))?;
        outcomes.push((Topic::Partials, Box::new(partials)));
    }
    let webhook = match &config.gateway.webhook {
        called if called.url.is_some() => {
            let group = format!("{}-webhook", kafka.group_id);
            let source = kafka::deliver(&kafka, &group, &called.topics())?;
            Some(Box::new(source) as Box<dyn Delivery>)
        }
        _ => None,
    };
    let turns =
        move || -> Result<_, LogError> { Ok(Box::new(kafka::write(&kafka, Topic::Turns)?) as _) };
    let topics = GatewayTopics {
        outcomes,
        since_ms,
        turns: Box::new(turns),
        webhook,
        partitioner: config.turns.partitioner,
        scope: config.turns.scope,
    };
    let served = serve(&config.gateway, topics, &stop, |address| {
        tracing::info!(%address, "serving");
    });
    served.map_err(|error| match error {
        // The log's own errors decide the exit code.
        GatewayError::Log(error) => error.into(),
        error => anyhow::Error::from(error),
    })?;
    writeln!(out, "stopped")?;
    Ok(())
}
