//! Tests of the whole: the built program, its records and its promises.

mod demo;
mod invariants;
mod schemas;
