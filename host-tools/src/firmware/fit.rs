//! Whether a model has room in a project for a board: what `dmexp plan` says of it.

use super::Board;
use crate::error::{Class, Error, Result};
use crate::plan::{Facts, Plan};
use dmexp_format::KvDType;
use dmexp_format::host::fit::Placement;

/// The plan of a project, which has one arena in the bank of its other statics.
///
/// # Errors
/// [`Class::Request`] where the plan does not fit, with what would, and where it needs a second bank.
pub(super) fn fit(board: &Board, facts: &Facts, context: u32, kv: KvDType) -> Result<Plan> {
    let plan = Plan::new(facts, board.plan(), Some(context), kv).map_err(|error| Error::new(Class::Request, error.to_string()))?;
    if !plan.fits() {
        let refused = Error::new(Class::Request, plan.refusals.join("; "));
        return Err(if plan.largest_context.is_some() { refused } else { refused.advise("choose a larger board (--list)") });
    }
    if plan.placement == Some(Placement::One(0)) {
        return Ok(plan);
    }
    let what = format!(
        "a session of {context} positions with keys and values in {kv} needs {} bytes of RAM, which {} has in other banks than the first, and a project is begun with one arena in that",
        plan.static_bytes(),
        board.name
    );
    let advice = match Plan::largest_in_first_bank(facts, board.plan(), kv) {
        Some(most) => format!("--context {most} would fit; more does by Session::new_in_banks, which dmexp plan lays out"),
        None => "lay it out by Session::new_in_banks, as dmexp plan says".to_owned(),
    };
    Err(Error::new(Class::Request, what).advise(advice))
}
