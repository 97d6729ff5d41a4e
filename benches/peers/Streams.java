import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** The bench's task in Kafka Streams: the latest six turns of a conversation in memory, exactly once. */
class Streams {
    private static final int KEPT = 6;
    private static final String STORE = "latest";

    /** Arguments: bootstrap, application id, topic of turns, topic of responses, folder of state. */
    public static void main(String[] args) {
        Properties config = new Properties();
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        config.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        config.put("consumer.auto.offset.reset", "earliest");
        config.put("producer.compression.type", "lz4");

        Topology topology = new Topology();
        topology.addSource("turns", args[2]);
        topology.addProcessor("respond", Respond::new, "turns");
        topology.addStateStore(
                Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(STORE), Serdes.String(), Serdes.ByteArray()),
                "respond");
        topology.addSink("responses", args[3], "respond");
        KafkaStreams streams = new KafkaStreams(topology, config);
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        var leaving = CloseOptions.timeout(Duration.ofSeconds(30))
                .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leaving)));
        streams.start();
    }

    /** Adds a turn to its conversation, and responds with the latest two. */
    static final class Respond implements Processor<String, byte[], String, byte[]> {
        private static final ObjectMapper JSON = new ObjectMapper();
        private ProcessorContext<String, byte[]> context;
        private KeyValueStore<String, byte[]> latest;

        @Override
        public void init(ProcessorContext<String, byte[]> context) {
            this.context = context;
            this.latest = context.getStateStore(STORE);
        }

        @Override
        public void process(Record<String, byte[]> record) {
            try {
                byte[] known = latest.get(record.key());
                ArrayNode turns = known == null ? JSON.createArrayNode() : (ArrayNode) JSON.readTree(known);
                JsonNode turn = JSON.readTree(record.value());
                turns.add(turn);
                if (turns.size() > KEPT) {
                    turns.remove(0);
                }
                ObjectNode response = JSON.createObjectNode();
                response.set("conversation_id", turn.get("conversation_id"));
                response.set("turn_id", turn.get("turn_id"));
                var place = context.recordMetadata().orElseThrow();
                response.putObject("input")
                        .put("topic", place.topic())
                        .put("partition", place.partition())
                        .put("offset", place.offset());
                ArrayNode said = response.putArray("latest");
                for (int at = Math.max(0, turns.size() - 2); at < turns.size(); at++) {
                    said.add(turns.get(at));
                }
                latest.put(record.key(), JSON.writeValueAsBytes(turns));
                context.forward(record.withValue(JSON.writeValueAsBytes(response)));
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
    }
}
