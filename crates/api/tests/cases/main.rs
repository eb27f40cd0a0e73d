//! Cases that broke other engines, each through the whole path: a file, `Model::open`, an engine, text.

mod chat;
mod common;
mod edges;
mod finite;
mod kv;
mod real_models;
mod requests;
mod run_time_codec;
mod same_answer;
mod trace;
