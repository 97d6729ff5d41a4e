//! Records whether a panic would be contained, and which input is being processed.
//!
//! Operators record the input that they process, and code that contains panics uses [`contain`].
//! The panic hook of the process reads both. They are two thread-local cells: nothing in the flow
//! depends on them, and their cost is not measurable.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use turnstream_schemas::RequestId;

thread_local! {
    static AT_WORK: Cell<Option<RequestId>> = const { Cell::new(None) };
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` on an input, so that a report of a panic names the input.
pub fn at_work<T>(input: impl Into<Option<RequestId>>, work: impl FnOnce() -> T) -> T {
    let before = AT_WORK.replace(input.into());
    let done = work();
    AT_WORK.set(before);
    done
}

/// The input that this thread processes, if any.
pub fn input_at_work() -> Option<RequestId> {
    AT_WORK.get()
}

/// Runs `work` and contains a panic. Changes that `work` made before the panic remain.
///
/// # Errors
/// The panic's message.
pub fn contain<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let (before, input) = (CONTAINED.replace(true), AT_WORK.get());
    let done = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(before);
    AT_WORK.set(input);
    done.map_err(|panic| message(&*panic))
}

/// Whether a panic of this thread would be contained now.
pub fn is_contained() -> bool {
    CONTAINED.get()
}

/// The message of a panic.
pub fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_at_work_just_while_it_is() {
        let request = |offset| RequestId { partition: 1, generation: 1, offset };
        let seen = at_work(request(5), || {
            let said = contain(|| {
                assert!(is_contained());
                at_work(request(6), || panic!("of {:?}", input_at_work().map(|it| it.offset)));
            });
            assert_eq!(said, Err::<(), _>("of Some(6)".to_owned()));
            input_at_work()
        });
        assert_eq!(seen, Some(request(5)), "as before what was contained");
        assert!(input_at_work().is_none() && !is_contained());
    }
}
