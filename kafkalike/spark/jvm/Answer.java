package kafkalike.spark;

import java.io.IOException;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.function.Function;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * Calls of Python's planner or committer, and parts of its JSON; Janino takes Jackson's `get` for that of its base
 * class.
 */
final class Answer {
    static final ObjectMapper JSON = new ObjectMapper();

    static JsonNode ask(Function python, String call, String first, String second) {
        ObjectNode question = JSON.createObjectNode();
        question.put("call", call);
        question.put("first", first);
        question.put("second", second);
        JsonNode answer;
        try {
            answer = JSON.readTree((String) python.apply(question.toString()));
        } catch (IOException cause) {
            throw new IllegalStateException(cause);
        }
        if (answer.has("error")) {
            throw new IllegalStateException(field(answer, "error").asText());
        }
        return answer;
    }

    static JsonNode field(JsonNode node, String name) {
        return (JsonNode) node.get(name);
    }

    static JsonNode item(JsonNode node, int at) {
        return (JsonNode) node.get(at);
    }

    /** Figures of the progress of a query, by their names. */
    static Map figures(JsonNode answer) {
        Map found = new HashMap();
        Iterator fields = answer.fields();
        while (fields.hasNext()) {
            Map.Entry field = (Map.Entry) fields.next();
            found.put(field.getKey(), ((JsonNode) field.getValue()).asText());
        }
        return found;
    }
}
