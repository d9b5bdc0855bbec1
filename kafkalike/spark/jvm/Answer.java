package kafkalike.spark;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.function.Function;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import py4j.ClientServerConnection;
import py4j.Gateway;
import py4j.PythonClient;
import py4j.reflection.PythonProxyHandler;

/**
 * Calls of Python's planner or committer, and parts of its JSON; Janino takes Jackson's `get` for that of its base
 * class.
 */
final class Answer {
    static final ObjectMapper JSON = new ObjectMapper();

    /** Connections to Python by the threads that opened them. */
    private static final Map CONNECTIONS = new HashMap();

    static JsonNode ask(Function python, String call, String first, String second) {
        ObjectNode question = JSON.createObjectNode();
        question.put("call", call);
        question.put("first", first);
        question.put("second", second);
        JsonNode answer;
        try {
            answer = JSON.readTree((String) call(python, question.toString()));
        } catch (IOException cause) {
            throw new IllegalStateException(cause);
        }
        if (answer.has("error")) {
            throw new IllegalStateException(field(answer, "error").asText());
        }
        return answer;
    }

    /**
     * Call Python. py4j opens a connection for each thread, and leaves it and Python's thread behind when the thread
     * ends, so the first call of another thread closes them.
     */
    static Object call(Function python, Object argument) {
        Object answer = python.apply(argument);
        synchronized (CONNECTIONS) {
            if (!CONNECTIONS.containsKey(Thread.currentThread())) {
                Iterator known = CONNECTIONS.entrySet().iterator();
                while (known.hasNext()) {
                    Map.Entry one = (Map.Entry) known.next();
                    if (!((Thread) one.getKey()).isAlive()) {
                        ((ClientServerConnection) one.getValue()).shutdown();
                        known.remove();
                    }
                }
                ClientServerConnection own = connection(python);
                if (own != null) {
                    CONNECTIONS.put(Thread.currentThread(), own);
                }
            }
        }
        return answer;
    }

    /** The connection that this thread has opened; null if it serves a thread of Python, or threads share them. */
    private static ClientServerConnection connection(Function python) {
        try {
            Field field = PythonProxyHandler.class.getDeclaredField("gateway");
            field.setAccessible(true);
            Object client = ((Gateway) field.get(Proxy.getInvocationHandler(python))).getCallbackClient();
            ClientServerConnection found =
                    client instanceof PythonClient ? ((PythonClient) client).getPerThreadConnection() : null;
            return found != null && found.isInitiatedFromClient() ? found : null;
        } catch (ReflectiveOperationException cause) {
            return null;
        }
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
