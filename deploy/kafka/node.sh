# Functions of deploy/kafka/start for one node: its ports, its settings, its process. Sourced, not run.
# shellcheck shell=bash

# taken PORT: succeeds if a process listens there. Remains of closed connections and clients' ends do not count.
taken() {
  local hex
  printf -v hex '%04X' "$1"
  grep -Eqs "^ *[0-9]+: [0-9A-F]+:$hex [0-9A-F]+:[0-9A-F]+ 0A " /proc/net/tcp /proc/net/tcp6
}

# pick PORT...: prints a free port that is none of these. It is below the range from which the kernel gives ports to
# outgoing connections, so that none of those takes it while a killed node is down.
pick() {
  local tries candidate
  for ((tries = 0; tries < 200; tries++)); do
    candidate=$((15000 + (RANDOM * 32768 + RANDOM) % 15000))
    if [[ " $* " != *" $candidate "* ]] && ! taken "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  die "found no free port"
}

# answers FOLDER: succeeds if its node answers a request (kind 18, which asks for the supported kinds): the reply begins
# with a size and our number 1. For a node with TLS this always succeeds; the caller also reads its log.
answers() {
  local reply
  ! grep -q '^advertised.listeners=.*SSL:' "$1/server.properties" || return 0
  reply=$(
    exec 3<>"/dev/tcp/127.0.0.1/$(<"$1/port")" || exit 1
    printf '\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff' >&3
    timeout 5 head -c 8 <&3 | od -An -tx1 | tr -d ' \n'
  ) 2>/dev/null
  [[ ${reply:8} == 00000001 ]]
}

# Sets `listener`, Kafka's name for the protocol of clients: with a log-in or without, over TLS or not.
name_listener() {
  listener=PLAINTEXT
  [[ -z $tls ]] || listener=SSL
  [[ -z $sasl$scram ]] || listener=SASL_$listener
}

# configure FOLDER ID PORT CONTROLLER: writes the settings of a node. Reads the number of `brokers` of the cluster, and
# the `voters` that elect the controller.
configure() {
  local listener copies=$brokers
  name_listener
  (umask 077 && cat >"$1/server.properties") <<END
$marker
process.roles=broker,controller
node.id=$2
controller.quorum.voters=$voters
listeners=$listener://127.0.0.1:$3,CONTROLLER://127.0.0.1:$4
advertised.listeners=$listener://127.0.0.1:$3
controller.listener.names=CONTROLLER
inter.broker.listener.name=$listener
listener.security.protocol.map=$listener:$listener,CONTROLLER:PLAINTEXT
log.dirs=$1/log

# Every node has a copy of everything, and all of them but one, at least one, have it before it counts as written.
# Few partitions of its own.
default.replication.factor=$copies
min.insync.replicas=$((copies > 1 ? copies - 1 : 1))
offsets.topic.replication.factor=$copies
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=$copies
transaction.state.log.min.isr=$((copies > 1 ? copies - 1 : 1))
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=$copies
share.coordinator.state.topic.min.isr=$((copies > 1 ? copies - 1 : 1))
share.coordinator.state.topic.num.partitions=4

# A misspelt topic is an error, not a new topic.
auto.create.topics.enable=false
num.partitions=$partitions

# Tests wait for these: groups form at once, short sessions are allowed,
# a dead producer's transaction is aborted soon after its timeout, compaction looks around often.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
log.cleaner.backoff.ms=500
log.cleaner.min.cleanable.ratio=0.01
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=8388608

# Small machine.
num.network.threads=2
num.io.threads=4
num.recovery.threads.per.data.dir=1
END
  [[ -z $sasl$scram ]] || log_ins >>"$1/server.properties"
  [[ -z $tls ]] || cat >>"$1/server.properties" <<END

# Nodes know each other, and clients the nodes, by one certificate that signed itself.
ssl.keystore.type=PKCS12
ssl.keystore.location=$data/tls.p12
ssl.keystore.password=$tls_password
ssl.truststore.type=PEM
ssl.truststore.location=$data/ca.pem
END
}

# Prints the settings for the log-in of clients; nodes log in with each other by the first mechanism.
log_ins() {
  local mechanisms=()
  if [[ -n $scram ]]; then
    log_in SCRAM-SHA-512 scram.ScramLoginModule "$scram"
    log_in SCRAM-SHA-256 scram.ScramLoginModule "$scram"
  fi
  [[ -z $sasl ]] || log_in PLAIN plain.PlainLoginModule "$sasl" "user_${sasl%%:*}=\"${sasl#*:}\""
  echo "sasl.mechanism.inter.broker.protocol=${mechanisms[0]}"
  (IFS=, && echo "sasl.enabled.mechanisms=${mechanisms[*]}")
}

# log_in MECHANISM MODULE USER:PASSWORD [OPTION]
log_in() {
  mechanisms+=("$1")
  printf 'listener.name.%s.%s.sasl.jaas.config=org.apache.kafka.common.security.%s required \\\n  username="%s" password="%s" %s;\n' \
    "${listener,,}" "${1,,}" "$2" "${3%%:*}" "${3#*:}" "${4:-}"
}

# Makes the certificate and its key, once for a data folder; clients trust ca.pem.
tls_password=turnstream
certify() {
  [[ ! -s $data/ca.pem ]] || return 0
  local keytool=${JAVA_HOME:+$JAVA_HOME/bin/}keytool
  (
    umask 077
    "$keytool" -genkeypair -alias node -keyalg EC -groupname secp256r1 -validity 3650 -dname 'CN=deploy/kafka' \
      -ext bc:critical=ca:true -ext san=ip:127.0.0.1,dns:localhost \
      -storetype PKCS12 -keystore "$data/tls.p12" -storepass "$tls_password" &&
      "$keytool" -exportcert -rfc -alias node -keystore "$data/tls.p12" -storepass "$tls_password" -file "$data/ca.pem"
  ) </dev/null >"$data/keytool.log" 2>&1 9>&- || die "could not make a certificate: $(tail -n 3 "$data/keytool.log")"
  rm -f "$data/keytool.log"
}

# format FOLDER CLUSTER: makes its log if there is none, with the user that logs in by SCRAM.
format() {
  local mechanism users=()
  [[ ! -f $1/log/meta.properties ]] || return 0
  if [[ -n $scram ]]; then
    for mechanism in SCRAM-SHA-256 SCRAM-SHA-512; do
      users+=(--add-scram "$mechanism=[name=${scram%%:*},password=${scram#*:}]")
    done
  fi
  tool_jvm
  timeout "$wait" "$java" "${tool_args[@]}" "-Djava.io.tmpdir=$1/tmp" kafka.tools.StorageTool format --ignore-formatted \
    --cluster-id "$2" --config "$1/server.properties" "${users[@]}" </dev/null >>"$1/broker.log" 2>&1 9>&-
}

# Prints the cluster id of the formatted nodes, else a new one: 128 random bits in Kafka's base64, which must not begin
# with a dash.
cluster_name() {
  local name
  name=$(cat "${nodes[@]/%//log/meta.properties}" 2>/dev/null | sed -n 's/^cluster\.id=//p' | head -n 1)
  echo "${name:-t$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | cut -c 2-22)}"
}

# launch FOLDER: starts its process, and sets `node` to its pid. The process has its own session and none of our
# descriptors, so that a reader of our output does not wait for the node to end.
launch() {
  (
    for fd in /proc/self/fd/*; do
      fd=${fd##*/}
      ((fd > 2 && fd != 255)) && eval "exec $fd>&-"
    done
    cd "$1"
    exec setsid "$java" -Xms128m -Xmx512m -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError "${class_args[@]}" \
      -Djava.awt.headless=true "-Djava.io.tmpdir=$1/tmp" \
      -Dturnstream.level=INFO "-Dlog4j2.configurationFile=$here/log4j2.properties" \
      -cp "$kafka_home/*" kafka.Kafka "$1/server.properties"
  ) </dev/null >>"$1/broker.log" 2>&1 &
  node=$!
  echo "$node" >"$1/pid"
}
