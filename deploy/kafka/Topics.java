import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TopicExistsException;

/**
 * Creates turnstream's topics, or checks those that are there. Run by deploy/kafka/topics, straight from source: one JVM
 * for all topics, where Kafka's own tool takes one for each.
 */
class Topics {
    private static final List<String> DELETED =
            List.of("turns", "responses", "traces", "recorded", "dead-letters", "partials");
    /** What a language model was writing is of no use once the outcome is there. */
    private static final String PARTIALS_MS = String.valueOf(10 * 60 * 1000);

    /** The largest record that a topic takes by default, and the reason beside it. */
    private static final String DEAD_LETTER_BYTES = String.valueOf(1_048_588 + 65_536);

    private static final List<String> COMPACTED = List.of("conversations", "history", "knowledge", "views");

    /** Read whole by every process, so that its number of partitions is its own. */
    private static final String KNOWLEDGE = "knowledge";

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        int partitions = Integer.parseInt(args[1]);
        String prefix = args[2];
        String segmentMs = args[3];
        int knowledgePartitions = Integer.parseInt(args[4]);

        List<NewTopic> topics = new ArrayList<>();
        for (String name : DELETED) {
            Map<String, String> config = new HashMap<>(Map.of("cleanup.policy", "delete"));
            if (name.equals("dead-letters")) {
                config.put("max.message.bytes", DEAD_LETTER_BYTES);
            }
            if (name.equals("partials")) {
                config.putAll(Map.of("retention.ms", PARTIALS_MS, "segment.ms", PARTIALS_MS));
            }
            topics.add(topic(prefix + name, partitions, config));
        }
        for (String name : COMPACTED) {
            Map<String, String> config = new HashMap<>(Map.of("cleanup.policy", "compact"));
            if (!segmentMs.equals("0")) {
                config.put("segment.ms", segmentMs);
            }
            topics.add(topic(prefix + name, name.equals(KNOWLEDGE) ? knowledgePartitions : partitions, config));
        }

        Map<String, Object> client = Map.of(
                "bootstrap.servers", bootstrap, "request.timeout.ms", "10000", "default.api.timeout.ms", "20000");
        List<String> faults = new ArrayList<>();
        try (Admin admin = Admin.create(client)) {
            createOrCheck(admin, topics, prefix + KNOWLEDGE, faults);
            if (faults.isEmpty()) {
                awaitLeaders(admin, topics.stream().map(NewTopic::name).toList());
            }
        } catch (Exception e) {
            faults.add("no answer from " + bootstrap + ": " + reason(e).getMessage());
        }
        faults.forEach(fault -> System.err.println("deploy/kafka/topics: " + fault));
        System.exit(faults.isEmpty() ? 0 : 1);
    }

    /** One replica is Kafka's default on our one node; a cluster of others applies its own default. */
    private static NewTopic topic(String name, int partitions, Map<String, String> config) {
        return new NewTopic(name, Optional.of(partitions), Optional.empty()).configs(config);
    }

    private static void createOrCheck(Admin admin, List<NewTopic> topics, String anyNumber, List<String> faults)
            throws Exception {
        var created = admin.createTopics(topics).values();
        for (NewTopic topic : topics) {
            try {
                created.get(topic.name()).get();
            } catch (ExecutionException e) {
                if (e.getCause() instanceof TopicExistsException) {
                    check(admin, topic, topic.name().equals(anyNumber), faults);
                } else if (e.getCause() instanceof TimeoutException) {
                    throw e;
                } else {
                    faults.add("topic " + topic.name() + ": " + e.getCause().getMessage());
                }
            }
        }
    }

    private static void check(Admin admin, NewTopic topic, boolean anyNumber, List<String> faults) throws Exception {
        String name = topic.name();
        int partitions = admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size();
        if (partitions != topic.numPartitions() && !anyNumber) {
            faults.add("topic " + name + " has " + partitions + " partitions, not " + topic.numPartitions()
                    + " (the number must not change under a live topic: delete it or take another --prefix)");
        }
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
        String policy = admin.describeConfigs(List.of(resource)).all().get().get(resource).get("cleanup.policy").value();
        String wanted = topic.configs().get("cleanup.policy");
        if (!policy.equals(wanted)) {
            faults.add("topic " + name + " has cleanup.policy=" + policy + ", not " + wanted);
        }
    }

    /** A topic is created before the broker leads all its partitions; a client that comes in between sees errors. */
    private static void awaitLeaders(Admin admin, List<String> names) throws Exception {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (true) {
            boolean led;
            try {
                led = admin.describeTopics(names).allTopicNames().get().values().stream()
                        .flatMap(topic -> topic.partitions().stream())
                        .allMatch(partition -> partition.leader() != null && !partition.leader().isEmpty());
            } catch (ExecutionException e) {
                led = false;
            }
            if (led) {
                return;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("some partitions have no leader");
            }
            Thread.sleep(20);
        }
    }

    private static Throwable reason(Exception e) {
        return e instanceof ExecutionException && e.getCause() != null ? e.getCause() : e;
    }
}
