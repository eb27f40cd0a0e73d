use super::*;
use nibble_quant::{Encoded, codec};
use nibble_tensor::{Bytes, Shape};

fn weight(name: &str, dims: &[usize]) -> Weight {
    let shape = Shape::new(dims).unwrap();
    let bytes = Bytes::from(vec![0; nibble_quant::byte_len(&shape, codec("q8_0")).unwrap()]);
    Weight::new(name, Encoded::new(name, shape, codec("q8_0"), bytes).unwrap())
}

fn small() -> Result<Graph, Error> {
    let mut g = Graph::default();
    let tokens = g.tokens()?;
    let x = g.embed(tokens, weight("embed", &[100, 32]))?;
    g.set_layer(Some(0));
    let gate = g.matmul(x, weight("gate", &[64, 32]))?;
    let up = g.matmul(x, weight("up", &[64, 32]))?;
    let h = g.gated(Activation::Silu, gate, up)?;
    let h = g.matmul(h, weight("down", &[32, 64]))?;
    let x = g.add(x, h)?;
    g.set_layer(None);
    let x = g.wanted(x)?;
    let logits = g.matmul(x, weight("embed", &[100, 32]))?;
    let logits = g.soft_cap(logits, 30.0)?;
    g.output(logits);
    Ok(g)
}

#[test]
fn a_weight_used_twice_is_held_once() {
    let g = small().unwrap();
    assert_eq!(g.weights.len(), 4);
    assert_eq!(g.shape(g.outputs[0]), (Rows::Wanted, 100));
    assert_eq!((g.vocab(), Graph::default().vocab()), (100, usize::MAX));
}

#[test]
fn a_matrix_of_another_width_is_refused_with_both_shapes() {
    let mut g = small().unwrap();
    let x = Value(1);
    let error = g.matmul(x, weight("odd", &[64, 96])).unwrap_err();
    assert_eq!(error.to_string(), "matmul in the graph: expected a weight [N, 32], found [64, 96]");
    assert!(g.push(Op::Add, &[x], &[]).is_err());
    assert!(g.push(Op::Add, &[x, Value(99)], &[]).is_err());
    assert!(g.push(Op::Slice { group: 16, start: 8, len: 9 }, &[x], &[]).is_err());
}

#[test]
fn expansion_keeps_what_a_backend_runs_and_the_outputs() {
    let g = small().unwrap();
    let same = g.expanded(|_| true).unwrap();
    assert_eq!(g.to_string(), same.to_string());
    let simple = g.expanded(|op| !matches!(op, Op::Gated(_) | Op::SoftCap(_))).unwrap();
    assert!(simple.nodes.iter().all(|n| !matches!(n.op, Op::Gated(_) | Op::SoftCap(_))));
    assert_eq!(simple.shape(simple.outputs[0]), (Rows::Wanted, 100));
    assert_eq!(simple.nodes.len(), g.nodes.len() + 3);
}

#[test]
fn labels_name_ops_with_their_weights_or_the_values_they_join() {
    let mut g = small().unwrap();
    g.set_layer(Some(7));
    let q = g.matmul(Value(1), weight("layer.7.attn.q", &[32, 32])).unwrap();
    let biased = g.bias(q, weight("layer.7.attn.q.bias", &[32])).unwrap();
    let label = |values: &[Value]| g.label(values).to_string();
    assert_eq!(label(&[q]), "layer 7: matmul (attn.q)");
    assert_eq!(label(&[q, biased]), "layer 7: matmul (attn.q) + bias (attn.q.bias)");
    assert_eq!(label(&[Value(4)]), "layer 0: gated (gate, up)");
    assert_eq!(label(&[Value(2), Value(3), Value(4)]), "layer 0: matmul (gate, up) + gated");
    assert_eq!((label(&[Value(9)]), label(&[])), ("soft_cap (embed)".into(), String::new()));
    assert_eq!((g.name(biased), g.name(Value(4))), ("attn.q".into(), "gated".into()));
}

#[test]
fn every_reader_of_a_value_is_known() {
    let g = small().unwrap();
    let users = g.users();
    assert_eq!(users.len(), g.nodes.len());
    let reads: usize = g.nodes.iter().map(|n| n.inputs.len()).sum();
    assert_eq!(users.iter().flatten().flatten().count(), reads);
    for &output in &g.outputs {
        assert_eq!(users[output.0 as usize].last(), Some(&None), "an output is read after the end");
    }
}

#[test]
fn a_layer_passes_on_the_last_value_made_in_it() {
    let g = small().unwrap();
    assert_eq!(g.layer_outputs(), [(0, Value(6))]);
    assert_eq!(g.node(Value(6)).op, Op::Add);
    assert!(Graph::default().layer_outputs().is_empty());
}

#[test]
fn the_dump_shows_shapes_weights_and_layers() {
    let dump = small().unwrap().to_string();
    assert!(dump.contains("layer 0\n  %2 [T, 64] = matmul %1; gate [64, 32] q8_0\n"), "{dump}");
    assert!(dump.ends_with("soft_cap %8 {cap=30}\noutput %9\n"), "{dump}");
}

#[test]
fn taps_are_what_weights_made_and_the_ends_of_layers() {
    let mut g = small().unwrap();
    let (logits, taps) = (g.outputs[0], g.tap());
    let found: Vec<_> = taps.iter().map(|t| (t.name.as_str(), t.layer)).collect();
    let expected = [
        ("embedding", None),
        ("gate", Some(0)),
        ("up", Some(0)),
        ("down", Some(0)),
        ("layer.0", Some(0)),
        ("embed", None),
    ];
    assert_eq!(found, expected, "the logits themselves are the first output already");
    assert_eq!((g.outputs[0], g.outputs.len()), (logits, 7));
    assert_eq!(g.tap(), taps, "a second time changes nothing");
}

#[test]
fn tapped_products_have_their_inputs_as_outputs() {
    let mut g = small().unwrap();
    let products = g.tap_products();
    let names: Vec<_> = products.iter().map(|p| g.weight(p.weight).name.as_str()).collect();
    assert_eq!(names, ["gate", "up", "down", "embed"]);
    assert_eq!(products[0].input, products[1].input, "gate and up have one input");
    for product in &products {
        let width = g.weight(product.weight).data.shape().row_len();
        assert_eq!((g.nodes[g.outputs[product.input].0 as usize].width, product.route), (width, None));
    }
    assert_eq!((g.outputs.len(), g.tap_products()), (4, products), "a second time changes nothing");
}
