//! Trains the models that this repository ships: the grammars that write the stories, the tokenizer, the Llama model with its gradient, the recipes, and small networks.
//! The binary `dmexp-train` (spawned by `cargo xtask train`) is the only user.

pub mod attention;
pub mod bpe;
pub mod checkpoint;
pub mod corpus;
pub mod curve;
pub mod grammar;
pub mod kernels;
pub mod model;
pub mod networks;
pub mod optimizer;
pub mod plots;
pub mod recipe;
pub mod reference;
pub mod rng;
pub mod sample;
pub mod shape;
pub mod template;
pub mod tiny_grammar;
pub mod tokenizer;
pub mod train;
pub mod words;
