//! Comparisons of whole models.

mod common;
mod layers;
mod perplexity;
mod sides;
