//! `dmexp plan`: what a model takes of a board, before anything is built.

use super::args;
use super::failure::{Failure, Outcome, request};
use super::output::{grouped, json, shown, style, table};
use anstyle::AnsiColor;
use clap::Args;
use dmexp_format::KvDType;
use dmexp_format::host::boards::{BOARDS, Board, STACK_BYTES};
use dmexp_format::host::fit::Placement;
use dmexp_tools::decode::Loaded;
use dmexp_tools::error::shown_path;
use dmexp_tools::plan::{Facts, Limit, Plan, Speed};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::io::{self, Write};
use std::path::PathBuf;

/// Say what a model takes of a board: flash, RAM, the longest context, and how fast it can be
///
/// Bytes of the model and of RAM are those that the linked firmware has; the code is that of our own firmware, and yours adds its drivers. Exits with 1 where the model does not fit the board.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp plan stories.dmexp --board rp2350
  dmexp plan stories.dmexp --board rp2040 --context 256 --kv q8
  dmexp plan stories.dmexp --all
  dmexp plan stories.dmexp --board stm32h743 --json | jq .ram.arena_bytes")]
pub(crate) struct PlanArgs {
    /// The .dmexp file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The board; a wrong name lists them
    #[arg(long, value_name = "NAME", required_unless_present = "all", value_parser = board)]
    board: Option<&'static Board>,
    /// Ranks all boards, those first that it fits and that are fastest
    #[arg(long, conflicts_with = "board")]
    all: bool,
    /// Positions [default: what the model was trained for]
    #[arg(long, value_name = "N", value_parser = args::from_one, allow_negative_numbers = true)]
    context: Option<u32>,
    /// How keys and values are kept: f32, f16 or q8
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = args::kv)]
    kv: KvDType,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// `--board`.
fn board(name: &str) -> Result<&'static Board, String> {
    Board::find(name).ok_or_else(|| format!("the boards are: {}", Board::names()))
}

/// Runs the command.
pub(crate) fn run(command: &PlanArgs) -> Outcome {
    let loaded = Loaded::open(&command.file)?;
    let facts = Facts::of(&loaded)?;
    let plan = |board| Plan::new(&facts, board, command.context, command.kv).map_err(|error| Failure::Told(error.in_file(loaded.path())));
    if let Some(board) = command.board {
        let plan = plan(board)?;
        if command.json {
            json(&as_json(&facts, &plan))?;
        } else {
            print(&shown_path(&command.file), &facts, &plan)?;
        }
        return if plan.fits() { Ok(()) } else { Err(Failure::FoundWrong) };
    }
    if !command.all {
        return Err(request("no board is named", "name one with --board, or rank them with --all"));
    }
    let mut plans = BOARDS.iter().map(plan).collect::<Outcome<Vec<_>>>()?;
    plans.sort_by(rank);
    if command.json {
        json(&Value::Array(plans.iter().map(|plan| as_json(&facts, plan)).collect()))?;
    } else {
        let mut out = anstream::stdout().lock();
        writeln!(out, "{}", all(&facts, &plans))?;
        writeln!(out, "{METHOD}")?;
        out.flush()?;
    }
    Ok(())
}

/// Boards that the model fits first, then those that are faster at least.
fn rank(one: &Plan, other: &Plan) -> Ordering {
    let least = |plan: &Plan| plan.speed.map_or(0.0, |speed| speed.tokens_per_s.0);
    other.fits().cmp(&one.fits()).then(least(other).total_cmp(&least(one)))
}

const METHOD: &str = "\
Model and RAM: as the firmware links them. Code: of this project's firmware in this type, by `cargo xtask size`; with
what is kept it is what `dmexp new firmware` begins with. Speed: instructions a weight that were counted on an
emulator in the steps of our story model (docs/plan.md), 1 to 2 cycles each, or by the manual's table of cycles for a
Cortex-M4F; best and worst case of reading the flash at the same time or in between. For the beginning of a text:
attention adds to every later position. What flash gives comes from manuals and, where --board says so, from
assumptions. Nothing was measured on the boards themselves.";

/// "12 to 20 tokens/s".
fn rate(speed: &Speed) -> String {
    let number = |rate: f64| if rate >= 10.0 { format!("{rate:.0}") } else { format!("{rate:.2}") };
    let (least, most) = (number(speed.tokens_per_s.0), number(speed.tokens_per_s.1));
    if least == most { format!("about {least} tokens/s") } else { format!("{least} to {most} tokens/s") }
}

/// What limits the speed, in words.
fn limit(speed: &Speed, facts: &Facts, plan: &Plan) -> String {
    let milliseconds = |cycles: f64| format!("{:.1}", 1e3 * cycles / plan.board.clock as f64);
    let (least, most) = (milliseconds(speed.cycles.0), milliseconds(speed.cycles.1));
    let core = format!(
        "the core's {} instructions a token take {} ms at {} MHz",
        grouped(speed.instructions as u64),
        if least == most { least } else { format!("{least} to {most}") },
        plan.board.clock / 1_000_000
    );
    let Some(seconds) = speed.flash_seconds else { return core };
    let flash = format!(
        "reading {} bytes of weights a token at {:.1} MB/s takes {:.1} ms",
        grouped(facts.bytes_per_token()),
        plan.board.bandwidth as f64 / 1e6,
        1e3 * seconds
    );
    match speed.limit {
        Limit::Core => format!("{core}; {flash}"),
        Limit::Flash => format!("{flash}; {core}"),
    }
}

fn print(file: &str, facts: &Facts, plan: &Plan) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    let board = plan.board;
    let types: Vec<&str> = facts.matrices.iter().map(|(dtype, ..)| dtype.name()).collect();
    let (verdict, colour) = if plan.fits() { ("fits", AnsiColor::Green) } else { ("does not fit", AnsiColor::Red) };
    let colour = style(colour);
    writeln!(out, "{} {colour}{verdict}{colour:#} {}, {}", shown(file), board.name, board.about)?;
    for refusal in &plan.refusals {
        writeln!(out, "  {refusal}")?;
    }
    let mut rows = Vec::new();
    match &plan.speed {
        Some(speed) => {
            let by = if speed.limit == Limit::Core { "the core" } else { "the flash" };
            rows.push(("speed", format!("{}, limited by {by}: {}", rate(speed), limit(speed, facts, plan))));
        }
        None if board.clock == 0 => rows.push(("speed", "not known: the emulated machine has no clock".to_owned())),
        None => rows.push(("speed", format!("not known: nothing was measured in {} on a {}", types.join(", "), board.core.name()))),
    }
    let code = plan.code.map_or_else(|| "not known".to_owned(), grouped);
    let total = facts.model_bytes + plan.program_bytes();
    let room = if board.model > 0 {
        format!("{} for code, {} for the model", grouped(board.code), grouped(board.model))
    } else {
        grouped(board.code)
    };
    rows.push((
        "flash",
        format!(
            "{} model + {code} code ({}) + {} kept for drivers = {} of {room}",
            grouped(facts.model_bytes),
            plan.code_set,
            grouped(board.drivers),
            grouped(total)
        ),
    ));
    let ram: Vec<String> = board.banks.iter().map(|(name, bytes)| format!("{} {name}", grouped(*bytes))).collect();
    rows.push((
        "RAM",
        format!(
            "{} arena with its cell + {} kept for the stack and drivers = {} of {}",
            grouped(plan.static_bytes()),
            grouped(board.kept),
            grouped(plan.static_bytes() + board.kept),
            ram.join(" + ")
        ),
    ));
    rows.push(("arena", arena(plan)));
    let positions = format!("{} positions with keys and values in {}", plan.context, plan.kv.name());
    let largest = match plan.largest_context {
        Some(largest) if largest == facts.config.max_seq_len => format!("{positions}; all {largest} that the model was trained for fit"),
        Some(largest) => format!("{positions}; {largest} fit, of {} that the model was trained for", facts.config.max_seq_len),
        None => format!("{positions}; not even one fits"),
    };
    rows.push(("context", largest));
    super::output::facts(&mut out, &rows)?;
    writeln!(out, "{METHOD}")?;
    if board.bandwidth > 0 {
        writeln!(out, "Flash of {}: {:.1} MB/s at most: {}.", board.name, board.bandwidth as f64 / 1e6, board.bandwidth_from)?;
    }
    out.flush()
}

/// Where the arena goes.
fn arena(plan: &Plan) -> String {
    let layout = &plan.layout;
    let name = |bank: usize| plan.board.banks.get(bank).map_or("", |(name, _)| name);
    let parts = format!("{} keys and values, {} everything else", grouped(layout.kv_bytes as u64), grouped(layout.work_bytes() as u64));
    match plan.placement {
        Some(Placement::One(bank)) => format!("{} bytes in {}: {parts}", grouped(layout.total_bytes as u64), name(bank)),
        Some(Placement::Two { kv, work }) => {
            format!("in two banks (Session::new_in_banks): keys and values in {}, everything else in {}: {parts}", name(kv), name(work))
        }
        None => format!("{} bytes: {parts}", grouped(layout.total_bytes as u64)),
    }
}

/// One line a board.
fn all(facts: &Facts, plans: &[Plan]) -> String {
    let header = ["board", "core", "fits", "tokens/s", "limit", "flash", "RAM", "longest context"];
    let rows = plans.iter().map(|plan| {
        let speed = plan.speed.as_ref();
        [
            plan.board.name.to_owned(),
            plan.board.core.name().to_owned(),
            if plan.fits() { "yes" } else { "no" }.to_owned(),
            speed.map_or_else(|| "-".to_owned(), |speed| rate(speed).replace(" tokens/s", "")),
            speed.map_or("-", |speed| if speed.limit == Limit::Core { "core" } else { "flash" }).to_owned(),
            grouped(facts.model_bytes + plan.program_bytes()),
            grouped(plan.static_bytes() + plan.board.kept),
            plan.largest_context.map_or_else(|| "-".to_owned(), |context| context.to_string()),
        ]
    });
    table(header, &[3, 5, 6, 7], rows)
}

fn as_json(facts: &Facts, plan: &Plan) -> Value {
    let (board, layout) = (plan.board, &plan.layout);
    let bank = |bank: usize| board.banks.get(bank).map(|(name, _)| *name);
    let placement = match plan.placement {
        Some(Placement::One(one)) => json!({ "arena": bank(one) }),
        Some(Placement::Two { kv, work }) => json!({ "kv": bank(kv), "work": bank(work) }),
        None => Value::Null,
    };
    json!({
        "board": board.name,
        "core": board.core.name(),
        "fits": plan.fits(),
        "why_not": plan.refusals,
        "context": plan.context,
        "kv": plan.kv.name(),
        "largest_context": plan.largest_context,
        "flash": {
            "model_bytes": facts.model_bytes,
            "code_bytes": plan.code,
            "code_of": plan.code_set,
            "drivers_bytes": board.drivers,
            "code_room": board.code,
            "model_room": plan.model_room,
        },
        "ram": {
            "arena_bytes": layout.total_bytes,
            "kv_bytes": layout.kv_bytes,
            "work_bytes": layout.work_bytes(),
            "static_bytes": plan.static_bytes(),
            "kept_bytes": board.kept,
            "stack_bytes": STACK_BYTES,
            "banks": board.banks.iter().map(|(name, bytes)| json!({ "name": name, "bytes": bytes })).collect::<Vec<_>>(),
            "placement": placement,
        },
        "speed": plan.speed.map(|speed| json!({
            "tokens_per_s_least": speed.tokens_per_s.0,
            "tokens_per_s_most": speed.tokens_per_s.1,
            "limit": if speed.limit == Limit::Core { "core" } else { "flash" },
            "instructions_per_token": speed.instructions,
            "cycles_per_token_least": speed.cycles.0,
            "cycles_per_token_most": speed.cycles.1,
            "cycles_by_table": speed.by_table,
            "bytes_per_token": facts.bytes_per_token(),
            "flash_seconds_per_token": speed.flash_seconds,
            "flash_bytes_per_s": (board.bandwidth > 0).then_some(board.bandwidth),
            "flash_bytes_per_s_from": Some(board.bandwidth_from).filter(|from| !from.is_empty()),
        })),
    })
}
