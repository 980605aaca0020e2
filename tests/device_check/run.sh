#!/bin/bash
# Everything that a machine with a GPU is asked for, in one command of less than five minutes: bits, memory errors and races, speed.
#
#   tests/device_check/run.sh [bits|sanitize|measure|hashes]...      without a word: bits, sanitize, measure
#
# bits      the logits of models/story.bin in every type of weights and of keys and values have the stored hashes, in every run; so has the text that the device chooses by itself, as a graph and without
# sanitize  NVIDIA's compute-sanitizer, where it is installed, finds nothing
# measure   prefill and decoding of made models of 15M, 42M, 110M and 1.1B weights in bf16, beside what they should cost
# hashes    writes tests/device_check/hashes.txt anew, with the processor instead of a GPU
#
# DMEXP and MADE name the programs (default: target/release/dmexp and target/release/made-checkpoint, as `cargo build --release -p dmexp-tools -p dmexp-tests --bins` makes them), DEVICE the device
# (default: cuda; the word cpu takes none), OUT the folder for what is kept (default: a new one).
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
dmexp=${DMEXP:-$root/target/release/dmexp}
made=${MADE:-$root/target/release/made-checkpoint}
out=${OUT:-$(mktemp -d)}
device=(--device "${DEVICE:-cuda}")
[ "${DEVICE:-cuda}" = cpu ] && device=()
hashes=$here/hashes.txt
failed=0
tokens=$(seq -s, 1 37 9472 | tr ',' '\n' | awk '{ print $1 % 512 }' | paste -sd, -)

# Not more than this many seconds for any one program.
limited() { timeout "$1" "${@:2}"; }
wrong() {
  echo "WRONG: $*"
  failed=1
}

export_story() { # type of weights
  [ -e "$out/story.$1.dmexp" ] || limited 60 "$dmexp" export run --quiet --no-golden --checkpoint "$root/models/story.bin" --tokenizer "$root/models/story.tokenizer.bin" --dtype "$1" --out "$out/story.$1.dmexp"
}

# Lines of `what hash`.
found() {
  local dtype kv hash
  for dtype in f32 f16 bf16 q8 q4; do
    export_story "$dtype" || return 2
    for kv in f32 f16 q8; do
      rm -f "$out/logits.f32"
      limited 60 "$dmexp" logits --export "$out/story.$dtype.dmexp" --tokens "$tokens" --kv "$kv" --out "$out/logits.f32" "${device[@]}" > "$out/logits.txt" 2>&1 || { cat "$out/logits.txt" >&2; return 2; }
      hash=$(sha256sum < "$out/logits.f32" | cut -d' ' -f1)
      echo "logits-$dtype-$kv $hash"
    done
    hash=$(limited 60 "$dmexp" generate --export "$out/story.$dtype.dmexp" --prompt "Once upon a time" --temp 0 --steps 200 "${device[@]}" "$@" 2> "$out/generate.txt" | sha256sum | cut -d' ' -f1)
    echo "story-$dtype $hash"
  done
}

bits() {
  local run more
  for run in "first run" "second run"; do
    more=()
    [ "$run" = "second run" ] && [ ${#device[@]} -gt 0 ] && more=(--no-graph)
    if ! found "${more[@]}" > "$out/found.txt"; then
      wrong "bits, $run: dmexp could not run"
    elif diff "$hashes" "$out/found.txt"; then
      echo "bits, $run: $(wc -l < "$hashes") hashes are those of the runtime"
    else
      wrong "bits, $run: other hashes than tests/device_check/hashes.txt"
    fi
  done
}

sanitize() {
  if ! command -v compute-sanitizer > /dev/null; then
    echo "sanitize: compute-sanitizer is not installed: skipped"
    return
  fi
  local tool dtype
  for dtype in bf16 q4; do
    export_story "$dtype" || return
    for tool in memcheck racecheck initcheck synccheck; do
      if limited 40 compute-sanitizer --tool "$tool" --error-exitcode 9 "$dmexp" logits --export "$out/story.$dtype.dmexp" --tokens 1,403,407,261,378 --kv q8 "${device[@]}" > "$out/sanitize-$tool-$dtype.txt" 2>&1; then
        echo "sanitize, $tool, $dtype: nothing found"
      else
        wrong "sanitize, $tool, $dtype: $(tail -3 "$out/sanitize-$tool-$dtype.txt")"
      fi
    done
  done
}

measure() {
  local shape
  "$dmexp" bench --costs bf16
  for shape in 15M 42M 110M 1.1B; do
    if limited 60 "$made" "$shape" "$out/made.bin" &&
      limited 90 "$dmexp" export run --quiet --no-golden --checkpoint "$out/made.bin" --tokenizer none --dtype bf16 --out "$out/made-$shape.dmexp" &&
      limited 60 "$dmexp" bench --export "$out/made-$shape.dmexp" --pp 128 --tg 64 --repetitions 3 "${device[@]}"; then
      :
    else
      wrong "measure, $shape: could not be measured"
    fi
    rm -f "$out/made.bin" "$out/made-$shape.dmexp"
  done 2>&1 | tee "$out/measured.txt"
}

command -v nvidia-smi > /dev/null && nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv
[ $# -gt 0 ] || set -- bits sanitize measure
for part in "$@"; do
  case $part in
    bits) bits ;;
    sanitize) sanitize ;;
    measure) measure && grep -q '^WRONG' "$out/measured.txt" && failed=1 ;;
    hashes) device=() && found > "$out/found.txt" && cp "$out/found.txt" "$hashes" || failed=1 ;;
    *) echo "there is no part $part" && exit 2 ;;
  esac
done
echo "kept: $out"
exit $failed
