//! Reads the request to the crash test, and plans the crashes that follow from it.

use std::time::Duration;

use super::random::Random;

const SEED: u64 = 20_261_121;

/// The number of kills, and the seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The environment variable that sets the number.
    variable: &'static str,
    pub(crate) kills: usize,
    pub(crate) seed: u64,
}

impl Asked {
    /// Reads the kills of processes from `TURNSTREAM_CRASH_KILLS`; by default as many as
    /// `cargo test` can afford.
    pub(crate) fn of_processes() -> Self {
        Self::from_environment("TURNSTREAM_CRASH_KILLS", 5)
    }

    /// Reads the kills of the broker, likewise, from `TURNSTREAM_CRASH_BROKER_KILLS`.
    pub(crate) fn of_the_broker() -> Self {
        Self::from_environment("TURNSTREAM_CRASH_BROKER_KILLS", 1)
    }

    /// Reads the outages of three brokers from `TURNSTREAM_CRASH_OUTAGES`.
    pub(crate) fn of_three_brokers() -> Self {
        Self::from_environment("TURNSTREAM_CRASH_OUTAGES", 2)
    }

    /// Reads the variable and `TURNSTREAM_CRASH_SEED`.
    fn from_environment(variable: &'static str, kills: usize) -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            let number = text.parse::<u64>();
            Some(number.unwrap_or_else(|error| panic!("{name} = `{text}`: {error}")))
        };
        Self {
            variable,
            kills: number(variable).map_or(kills, |kills| kills as usize),
            seed: number("TURNSTREAM_CRASH_SEED").unwrap_or(SEED),
        }
    }

    /// Returns the command that asks for this again.
    pub(crate) fn command(self) -> String {
        let Self { variable, kills, seed } = self;
        let tests = match variable {
            "TURNSTREAM_CRASH_BROKER_KILLS" => "crash::killed_brokers",
            "TURNSTREAM_CRASH_OUTAGES" => "crash::outages",
            _ => "crash::",
        };
        format!(
            "{variable}={kills} TURNSTREAM_CRASH_SEED={seed} cargo test --test it {tests} -- \
             --nocapture"
        )
    }
}

/// The situation in which a process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// It runs alone.
    Alone,
    /// Another process shares the group with it.
    Together,
    /// A second process is joining: it is killed, or the first one.
    AtJoin,
    /// One process was asked to leave: it is killed, or the one that stays.
    AtLeave,
    /// The broker is killed, under two processes that share the group, or one and one that joins.
    Broker,
}

/// All kinds that kill a process.
pub(crate) const KINDS: [Kind; 4] = [Kind::Alone, Kind::Together, Kind::AtJoin, Kind::AtLeave];

/// The moment of the kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// This many outcomes after the situation came about, and a little later.
    Outcomes(usize, Duration),
    /// This long after it came about: perhaps before anything was restored.
    Time(Duration),
}

/// One crash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    pub(crate) kind: Kind,
    pub(crate) moment: Moment,
    /// Whether, of two, the one is hit that came (or was asked to leave) first.
    pub(crate) first: bool,
    /// Which of two is asked to leave: the second if set.
    pub(crate) leaver: bool,
    /// The time until it is started again.
    pub(crate) away: Duration,
    /// Before that, one of two is halted for this long, and then goes on: it loses its partitions,
    /// and perhaps its transaction, without noticing. The first of them is halted while it is
    /// giving partitions to the second.
    pub(crate) halt: Option<Duration>,
}

/// Plans the crashes of a service: every kind as often as any other, in a random order. The first
/// round begins with the kind number `begin`, so that short runs of several services cover all;
/// with `halts` the first crash begins with a halt.
pub(crate) fn crashes(count: usize, begin: usize, halts: bool, random: &mut Random) -> Vec<Crash> {
    let mut kinds = Vec::with_capacity(count);
    while kinds.len() < count {
        let mut round = KINDS;
        if kinds.is_empty() {
            round.rotate_left(begin % KINDS.len());
        } else {
            random.shuffle(&mut round);
        }
        kinds.extend(round.into_iter().take(count - kinds.len()));
    }
    let mut crashes: Vec<_> = kinds.into_iter().map(|kind| crash(kind, random)).collect();
    if let Some(first) = crashes.first_mut().filter(|_| halts) {
        (first.halt, first.first) = (Some(Duration::from_secs(5)), true);
    }
    crashes
}

/// Plans crashes of the broker. A transaction that is open then is lost in any case: at its start
/// the broker waits for its own dead session, for longer than a transaction may take.
pub(crate) fn of_the_broker(count: usize, random: &mut Random) -> Vec<Crash> {
    let crash = |_| Crash {
        away: Duration::from_millis(random.below(8_000) as u64),
        halt: None,
        ..crash(Kind::Broker, random)
    };
    (0..count).map(crash).collect()
}

fn crash(kind: Kind, random: &mut Random) -> Crash {
    let mut milliseconds = |end| Duration::from_millis(random.below(end) as u64);
    let (little, short, long) = (milliseconds(60), milliseconds(600), milliseconds(3_000));
    let away = milliseconds(600);
    let by_outcomes = Moment::Outcomes(20 + random.below(500), little);
    let moment = match kind {
        Kind::Alone | Kind::Together | Kind::Broker if random.percent(75) => by_outcomes,
        Kind::Alone | Kind::Together | Kind::AtJoin | Kind::Broker => Moment::Time(long),
        Kind::AtLeave => Moment::Time(short),
    };
    // Sometimes it stays away until others own its partitions, and the transaction that it left
    // open has expired.
    let away = if random.percent(15) { away + Duration::from_secs(8) } else { away };
    let (first, leaver) = (random.percent(50), random.percent(50));
    // From a little longer than a session to a little longer than a transaction may take.
    let halt = Duration::from_millis(3_500 + random.below(4_000) as u64);
    let halt = random.percent(10).then_some(halt);
    Crash { kind, moment, first, leaver, away, halt }
}
