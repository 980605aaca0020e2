#!/bin/bash
# Everything that a machine with a GPU is asked for, in one command of less than five minutes: bits, speed, memory errors and races.
#
#   tests/device_check/run.sh [bits|steps|measure|sanitize|hashes]...      without a word: bits, steps, measure, sanitize
#
# bits      the logits of models/story.bin and of a made ternary model in every type of weights and of keys and values have the stored hashes, in every run, and so have those of a made model of dormouse
#           in every type of weights and both ways of decoding; so has the text that the device chooses by itself, as a graph and without
# steps     the logits of positions that are computed one by one are those of this machine's processor, in every type of weights and of keys and values, and far behind
# measure   prefill and decoding of made models of 15M, 42M, 110M and 1.1B weights and of dormouse's size small in bf16, beside what they should cost
# sanitize  NVIDIA's compute-sanitizer, where it is installed and runs, finds nothing
# hashes    writes tests/device_check/hashes.txt anew, with the processor instead of a GPU
#
# It takes NVIDIA's driver, bash, coreutils, diffutils, grep and awk, and two programs, but no network and no toolchain: `cargo xtask device-check` builds the programs and puts them with all else that is needed
# into target/device-check, whose copy of this file runs on any machine with the same C library or a newer one. In the repository it takes those of target/release.
#
# DMEXP and MADE name the programs, DEVICE the device (default: cuda; the word cpu takes none), OUT the folder for what is kept (default: a new one), BUDGET the seconds that all may take together
# (default: 280), SHAPES what is measured.
#
# Every line that begins with WRONG is something that a GPU must not do, and makes the status 1; a line that begins with NOT CHECKED says what kept something from being checked.
set -u
here=$(cd "$(dirname "$0")" && pwd)
if [ -x "$here/dmexp" ]; then
  models=$here
  programs=$here
else
  models=$(cd "$here/../../models" && pwd)
  programs=$(cd "$here/../.." && pwd)/target/release
fi
dmexp=${DMEXP:-$programs/dmexp}
made=${MADE:-$programs/made-checkpoint}
budget=${BUDGET:-280}
shapes=${SHAPES:-15M 42M 110M 1.1B dormouse-small}
out=${OUT:-$(mktemp -d)} || exit 2
# The driver compiles the kernels once, not in every program; its own place for them may not be writable.
export CUDA_CACHE_PATH=${CUDA_CACHE_PATH:-$out/kernels}
device=(--device "${DEVICE:-cuda}")
[ "${DEVICE:-cuda}" = cpu ] && device=()
hashes=$here/hashes.txt
failed=0
tokens=$(seq -s, 1 37 9472 | tr ',' '\n' | awk '{ print $1 % 512 }' | paste -sd, -)
bytes=$(seq -s, 7 29 1370 | tr ',' '\n' | awk '{ print $1 % 256 }' | paste -sd, -)

wrong() {
  echo "WRONG: $*"
  failed=1
}

# What did not come to its end: a fault, or no time left for it.
stopped() {
  if [ "$SECONDS" -ge "$budget" ]; then
    echo "NOT CHECKED: $*"
  else
    wrong "$*"
  fi
}

# Runs a program for not more than so many seconds, nor than are left; what it prints goes to the file $said, whose end is in the message when it fails.
said=$out/said.txt
limited() {
  local most=$1 left=$((budget - SECONDS)) status
  shift
  if [ "$left" -le 0 ]; then
    echo "the $budget s of BUDGET are over" > "$said"
    return 124
  fi
  timeout -k 5 "$((left < most ? left : most))" "$@" > "$said" 2>&1
  status=$?
  [ "$status" = 124 ] || [ "$status" = 137 ] && echo "it was stopped after $((left < most ? left : most)) s" >> "$said"
  return "$status"
}
reason() { grep . "$said" | tail -n 1; }

export_story() { # type of weights
  local source=(--checkpoint "$models/story.bin")
  [ -e "$out/story.$1.dmexp" ] && return
  if [ "$1" = t2 ]; then
    limited 30 "$made" ternary "$out/ternary.bin" || return
    source=(--checkpoint "$out/ternary.bin")
  fi
  limited 60 "$dmexp" export run --quiet --no-golden "${source[@]}" --tokenizer "$models/story.tokenizer.bin" --dtype "$1" --out "$out/story.$1.dmexp"
}

export_mouse() { # type of weights
  [ -e "$out/mouse.$1.dmexp" ] && return
  [ -e "$out/mouse.f32" ] || limited 30 "$made" dormouse "$out/mouse.f32" || return
  limited 60 "$dmexp" export run --quiet --no-golden --checkpoint "$out/mouse.f32" --dtype "$1" --format 2 --out "$out/mouse.$1.dmexp"
}

# Writes lines of `what hash` to found.txt.
find_hashes() {
  local dtype kv decoding
  : > "$out/found.txt"
  for dtype in f32 f16 bf16 q8 q4 t2; do
    export_story "$dtype" || return
    for kv in f32 f16 q8; do
      rm -f "$out/logits.f32"
      limited 60 "$dmexp" logits --export "$out/story.$dtype.dmexp" --tokens "$tokens" --kv "$kv" --out "$out/logits.f32" "${device[@]}" "$@" || return
      echo "logits-$dtype-$kv $(sha256sum < "$out/logits.f32" | cut -d' ' -f1)" >> "$out/found.txt"
    done
    # The text alone: what is said of the device is on the other stream.
    limited 60 bash -c '"$@" > "$0"' "$out/story.txt" "$dmexp" generate --export "$out/story.$dtype.dmexp" --prompt "Once upon a time" --temp 0 --steps 200 "${device[@]}" "$@" || return
    echo "story-$dtype $(sha256sum < "$out/story.txt" | cut -d' ' -f1)" >> "$out/found.txt"
    export_mouse "$dtype" || return
    for decoding in exact fast; do
      rm -f "$out/logits.f32"
      limited 60 "$dmexp" logits --export "$out/mouse.$dtype.dmexp" --tokens "$bytes" --decoding "$decoding" --out "$out/logits.f32" "${device[@]}" "$@" || return
      echo "dormouse-$dtype-$decoding $(sha256sum < "$out/logits.f32" | cut -d' ' -f1)" >> "$out/found.txt"
    done
    limited 60 bash -c '"$@" > "$0"' "$out/story.txt" "$dmexp" generate --export "$out/mouse.$dtype.dmexp" --prompt "Once upon a time" --temp 0 --steps 40 "${device[@]}" "$@" || return
    echo "dormouse-$dtype-text $(sha256sum < "$out/story.txt" | cut -d' ' -f1)" >> "$out/found.txt"
  done
}

bits() {
  local run more
  for run in "first run" "second run"; do
    more=()
    [ "$run" = "second run" ] && [ ${#device[@]} -gt 0 ] && more=(--no-graph)
    if ! find_hashes "${more[@]}"; then
      stopped "bits, $run, after $(wc -l < "$out/found.txt") of $(wc -l < "$hashes") hashes: $(reason)"
    elif cmp -s "$hashes" "$out/found.txt"; then
      echo "bits, $run: $(wc -l < "$hashes") hashes are those of the runtime"
    else
      wrong "bits, $run: others than in hashes.txt are $(diff "$hashes" "$out/found.txt" | awk '/^>/ { print $2 }' | paste -sd' ' -)"
    fi
  done
}

# Positions one by one, to the bit, against this machine's processor: a step has other kernels than a block of positions, which bits feeds.
one_by_one() { # name, file, tokens, positions, type of keys and values
  if limited 60 "$dmexp" compare --quiet --export "$2" --tokens "$3" --positions "$4" --greedy 0 --kv "$5" --device "${DEVICE:-cuda}"; then
    echo "steps, $1: $(reason)"
  else
    stopped "steps, $1: $(reason)"
  fi
}

steps() {
  local pair kv long
  for pair in f32:f32 f16:f16 bf16:q8 q8:f32 q4:f16 t2:q8; do
    export_story "${pair%:*}" || { stopped "steps, ${pair%:*}: $(reason)"; continue; }
    one_by_one "$pair" "$out/story.${pair%:*}.dmexp" "$tokens" 256 "${pair#*:}"
  done
  # Behind so many positions attention is spread over several launches.
  long=$(seq 1 1100 | awk '{ print $1 * 37 % 512 }' | paste -sd, -)
  if ! { limited 20 "$made" long "$out/long.bin" &&
    limited 60 "$dmexp" export run --quiet --no-golden --checkpoint "$out/long.bin" --tokenizer none --dtype f32 --out "$out/long.dmexp"; }; then
    stopped "steps, long: $(reason)"
    return
  fi
  for kv in f32 f16 q8; do one_by_one "long:$kv" "$out/long.dmexp" "$long" 1100 "$kv"; done
}

measure() {
  local shape as
  limited 20 "$dmexp" bench --costs bf16 && cat "$said"
  for shape in $shapes; do
    as=(--tokenizer none)
    [ "$shape" = dormouse-small ] && as=(--format 2)
    if limited 60 "$made" "$shape" "$out/made.bin" &&
      limited 90 "$dmexp" export run --quiet --no-golden --checkpoint "$out/made.bin" "${as[@]}" --dtype bf16 --out "$out/made-$shape.dmexp" &&
      limited 60 "$dmexp" bench --quiet --export "$out/made-$shape.dmexp" --pp 128 --tg 64 --repetitions 3 "${device[@]}"; then
      tee -a "$out/measured.txt" < "$said"
    else
      stopped "measure, $shape: $(reason)"
    fi
    rm -f "$out/made.bin" "$out/made-$shape.dmexp"
  done
}

sanitize() {
  local tool model status asked
  if ! command -v compute-sanitizer > /dev/null; then
    echo "NOT CHECKED: sanitize: compute-sanitizer is not installed"
    return
  fi
  for model in story.bf16 story.q4 mouse.q8; do
    "export_${model%.*}" "${model#*.}" || { stopped "sanitize, $model: $(reason)"; continue; }
    # A prompt is read at once, and then come steps and the device's own choices.
    asked=(--prompt "Once upon a time" --temp 0 --steps 12)
    [ "${model%.*}" = story ] && asked+=(--kv q8)
    for tool in memcheck racecheck initcheck synccheck; do
      limited 60 compute-sanitizer --tool "$tool" --error-exitcode 9 "$dmexp" generate --export "$out/$model.dmexp" "${asked[@]}" "${device[@]}"
      status=$?
      case $status in
        0) echo "sanitize, $tool, $model: nothing found" ;;
        9)
          if grep -q 'Device not supported' "$said"; then
            echo "NOT CHECKED: sanitize, $tool, $model: $(grep -m 1 'Device not supported' "$said")"
            continue
          fi
          cp "$said" "$out/sanitize-$tool-$model.txt"
          wrong "sanitize, $tool, $model: $(grep -m 1 '=========.*[a-z]' "$said") (all of it: $out/sanitize-$tool-$model.txt)"
          ;;
        *) echo "NOT CHECKED: sanitize, $tool, $model: compute-sanitizer does not get through (status $status): $(reason)" ;;
      esac
    done
  done
}

for program in "$dmexp" "$made"; do
  [ -x "$program" ] || { echo "there is no program $program: cargo xtask device-check builds it"; exit 2; }
done
limited 20 "$dmexp" --version || { echo "$dmexp does not run here: $(reason)"; exit 2; }
cat "$said"
if [ ${#device[@]} -gt 0 ]; then
  if command -v nvidia-smi > /dev/null; then
    limited 20 nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader && cat "$said" || echo "nvidia-smi does not run: $(reason)"
  else
    echo "there is no nvidia-smi; whether there is a driver is seen in what follows"
  fi
fi
[ $# -gt 0 ] || set -- bits steps measure sanitize
for part in "$@"; do
  case $part in
    bits) bits ;;
    steps) steps ;;
    measure) measure ;;
    sanitize) sanitize ;;
    hashes)
      device=()
      find_hashes && cp "$out/found.txt" "$hashes" || wrong "hashes: $(reason)"
      ;;
    *) echo "there is no part $part: bits, steps, measure, sanitize, hashes"; exit 2 ;;
  esac
done
echo "$SECONDS s; kept: $out"
exit $failed
