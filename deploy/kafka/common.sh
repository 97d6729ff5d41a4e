# Shared by the scripts in this folder; sourced, not run.
# shellcheck shell=bash

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
me=deploy/kafka/$(basename "$0")

die() {
  printf '%s: %s\n' "$me" "$1" >&2
  exit "${2:-1}"
}

# die for wrong usage
usage_error() {
  die "$1 (try $me --help)" 2
}

# number NAME VALUE MIN MAX: refuses what is not a whole number in that range
number() {
  if ! [[ $2 =~ ^[0-9]{1,6}$ ]] || ((10#$2 < $3 || 10#$2 > $4)); then
    usage_error "$1 takes a number from $3 to $4, not '$2'"
  fi
}

kafka_version=$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' "$here/pom.xml")
kafka_home=${TURNSTREAM_KAFKA_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/turnstream/kafka/$kafka_version}
[[ $kafka_home == /* ]] || kafka_home=$PWD/$kafka_home
java=${JAVA_HOME:+$JAVA_HOME/bin/}java

# The cache is complete when its manifest is of this pom and every jar in it has the size it was fetched with.
# The manifest is written last.
cache_complete() {
  local manifest=$kafka_home/manifest size name
  [[ -f $manifest ]] || return 1
  [[ $(head -n 1 "$manifest") == "pom $(pom_sum)" ]] || return 1
  while read -r size name; do
    [[ $(stat -c %s "$kafka_home/$name" 2>/dev/null) == "$size" ]] || return 1
  done < <(tail -n +2 "$manifest")
}

pom_sum() {
  cksum <"$here/pom.xml"
}

need_java() {
  local version
  command -v "$java" >/dev/null || die "no java found; deploy/packages installs one"
  version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
  ((${version:-0} >= 17)) || die "Kafka $kafka_version needs Java 17 or newer, this is ${version:-unknown} ($java)"
}

need_kafka() {
  need_java
  cache_complete || die "no complete Kafka $kafka_version in $kafka_home; run deploy/kafka/fetch first"
}

# Arguments of a short-lived JVM: small, one compiler tier, quiet
# shellcheck disable=SC2034 # read by those who source this
tool_jvm() {
  tool_args=(-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1
    "-Dlog4j2.configurationFile=$here/log4j2.properties" -cp "$kafka_home/*")
}

# absolute DIR: its full path, which has to exist
absolute() {
  (cd "$1" && pwd -P)
}

# The first line of every server.properties we write; tells our data folders from others
marker='# Written by deploy/kafka/start; written anew at every start.'

is_ours() {
  [[ -f $1/server.properties && $(head -n 1 "$1/server.properties") == "$marker" ]]
}

# nodes_of DIR: the folders of its nodes, one a line: the folder itself where there is one node, and the numbered
# folders in it where there are several. Nothing where it is not ours.
nodes_of() {
  local folder
  if is_ours "$1"; then
    printf '%s\n' "$1"
  elif is_ours "$1/1"; then
    for folder in "$1"/[1-9]; do
      if is_ours "$folder"; then printf '%s\n' "$folder"; fi
    done
  fi
}

# running DIR: true, and sets pid, when the node of that folder lives.
# A pid that another program got since has another command line.
running() {
  pid=
  [[ -s $1/pid ]] || return 1
  pid=$(<"$1/pid")
  [[ $pid =~ ^[0-9]+$ ]] && tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF "$1/server.properties"
}

# leaving DIR: its node ends, and still has threads that hold its port and its files. The command line is the first
# thing that a process loses.
leaving() {
  local pid threads
  [[ -s $1/pid ]] || return 1
  pid=$(<"$1/pid")
  [[ $pid =~ ^[0-9]+$ && -d /proc/$pid && -z $(tr -d '\0' 2>/dev/null <"/proc/$pid/cmdline") ]] || return 1
  # The last thread of one that nobody has asked after yet holds nothing.
  threads=("/proc/$pid/task"/*)
  ((${#threads[@]} > 1)) || ! grep -qs '^State:.[ZX]' "/proc/$pid/status"
}
