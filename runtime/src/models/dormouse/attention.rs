//! Plain attention: causal, with rotary positions counted from the window's start. Keys and values are kept as f32.

use super::linear::{Net, Tools};
use super::split;
use crate::format::arch::dormouse::tensors::Layer;
use crate::format::arch::llama::RopeLayout;
use crate::ops::attention::{Heads, attention};
use crate::ops::kv::KvRows;
use crate::ops::rope::{rotate, rotation};

/// Runs position `position` of `context`; `kv` is the iteration's keys, then its values. The projected results are the first `d_model` numbers of `arm` then.
#[inline(never)]
pub(super) fn attend(
    net: &Net<'_, '_>,
    x: &[f32],
    (position, context): (u32, u32),
    kv: &mut [f32],
    turns: &mut [f32],
    arm: &mut [f32],
    tools: &mut Tools<'_>,
) {
    let config = net.config();
    let (d, width, head_dim) = (config.d_model as usize, config.width() as usize, config.head_dim as usize);
    let (projected, rest) = split(arm, d);
    let (q, rest) = split(rest, width);
    let (k, rest) = split(rest, width);
    let (v, rest) = split(rest, width);
    let (results, rest) = split(rest, width);
    let (lanes, scores) = split(rest, head_dim.saturating_mul(8));
    net.project(q, Layer::Plain(0), x, &mut [], tools);
    net.project(k, Layer::Plain(1), x, &mut [], tools);
    net.project(v, Layer::Plain(2), x, &mut [], tools);
    let (cos, sin) = split(turns, head_dim / 2);
    rotation(cos, sin, net.inv_freq, position, 1.0);
    rotate(q, head_dim, cos, sin, RopeLayout::Half);
    rotate(k, head_dim, cos, sin, RopeLayout::Half);
    let (keys, values) = split(kv, width.saturating_mul(context as usize));
    let start = width.saturating_mul(position as usize);
    for (rows, new) in [(&mut *keys, &*k), (&mut *values, &*v)] {
        for (to, from) in rows.get_mut(start..start.saturating_add(width)).unwrap_or_default().iter_mut().zip(new) {
            *to = *from;
        }
    }
    let heads = Heads { n_heads: config.n_heads as usize, n_kv_heads: config.n_heads as usize, head_dim };
    attention(results, q, KvRows::F32(keys), KvRows::F32(values), heads, (0, position as usize), scores, lanes);
    net.project(projected, Layer::Plain(3), results, &mut [], tools);
}
