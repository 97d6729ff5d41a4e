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

# number NAME VALUE MIN MAX: dies unless VALUE is a whole number in that range
number() {
  if ! [[ $2 =~ ^[0-9]{1,6}$ ]] || ((10#$2 < $3 || 10#$2 > $4)); then
    usage_error "$1 takes a number from $3 to $4, not '$2'"
  fi
}

kafka_version=$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' "$here/pom.xml")
kafka_home=${TURNSTREAM_KAFKA_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/turnstream/kafka/$kafka_version}
[[ $kafka_home == /* ]] || kafka_home=$PWD/$kafka_home
java=${JAVA_HOME:+$JAVA_HOME/bin/}java

# Succeeds if the manifest is of this pom and every jar in it has the size it was fetched with. The manifest is written
# last.
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

# Dies without a fit Java. Sets class_archive, the classes that a node loads as this Java keeps them, and class_args: with
# them a JVM starts in half the time. fetch makes the archive; without it a JVM starts as ever.
need_java() {
  local version major
  command -v "$java" >/dev/null || die "no java found; deploy/packages installs one"
  version=$("$java" -version 2>&1 | sed -n 's/.* version "\([^"]*\)".*/\1/p' | head -n 1)
  major=${version%%[^0-9]*}
  ((${major:-0} >= 17)) || die "Kafka $kafka_version needs Java 17 or newer, this is ${version:-unknown} ($java)"
  class_archive=$kafka_home/classes-$version.jsa
  class_args=()
  if [[ -f $class_archive ]]; then
    class_args=("-XX:SharedArchiveFile=$class_archive" "${quiet_classes[@]}")
  fi
}
# Jars of another date make an archive useless, which is nothing to tell the user of a console consumer.
quiet_classes=(-Xlog:cds=off -Xlog:cds+dynamic=off)

need_kafka() {
  need_java
  cache_complete || die "no complete Kafka $kafka_version in $kafka_home; run deploy/kafka/fetch first"
}

# Sets the arguments of a short-lived JVM: small, one compiler tier, quiet
# shellcheck disable=SC2034 # the scripts that source this read it
tool_jvm() {
  tool_args=(-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "${class_args[@]}"
    "-Dlog4j2.configurationFile=$here/log4j2.properties" -cp "$kafka_home/*")
}

# absolute DIR: prints the full path of DIR, which must exist
absolute() {
  (cd "$1" && pwd -P)
}

# The first line of every server.properties we write; identifies our data folders
marker='# Written by deploy/kafka/start; written anew at every start.'

is_ours() {
  [[ -f $1/server.properties && $(head -n 1 "$1/server.properties") == "$marker" ]]
}

# nodes_of DIR: prints the folders of its nodes, one a line: DIR itself for one node, the numbered folders in it for
# several, and nothing if DIR is not ours.
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

# running DIR: succeeds, and sets pid, if the node of that folder lives. If another program has the pid by now, the
# command line differs.
running() {
  pid=
  [[ -s $1/pid ]] || return 1
  pid=$(<"$1/pid")
  [[ $pid =~ ^[0-9]+$ ]] && tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF "$1/server.properties"
}

# leaving DIR: succeeds if the node is ending and still has threads that hold its port and its files. A process loses
# its command line first.
leaving() {
  local pid threads
  [[ -s $1/pid ]] || return 1
  pid=$(<"$1/pid")
  [[ $pid =~ ^[0-9]+$ && -d /proc/$pid && -z $(tr -d '\0' 2>/dev/null <"/proc/$pid/cmdline") ]] || return 1
  # The last thread of a process that its parent has not yet waited for holds nothing.
  threads=("/proc/$pid/task"/*)
  ((${#threads[@]} > 1)) || ! grep -qs '^State:.[ZX]' "/proc/$pid/status"
}
