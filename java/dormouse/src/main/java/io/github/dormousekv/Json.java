package io.github.dormousekv;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The JSON of the library's reports, which is sound: objects, arrays, texts, numbers and words. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    static String quoted(String what, String value) {
        return quoted(Library.given(what, value));
    }

    static String quoted(String value) {
        StringBuilder s = new StringBuilder("\"");
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') {
                s.append('\\').append(c);
            } else if (c < ' ') {
                s.append(String.format("\\u%04x", (int) c));
            } else {
                s.append(c);
            }
        }
        return s.append('"').toString();
    }

    /** An object; values are JSON already. */
    static String object(Map<String, String> fields) {
        StringBuilder s = new StringBuilder("{");
        fields.forEach((name, value) -> s.append(s.length() == 1 ? "" : ",").append(quoted(name)).append(':').append(value));
        return s.append('}').toString();
    }

    /** Objects are Map, arrays List, numbers Long or Double. */
    @SuppressWarnings("unchecked")
    static Map<String, Object> object(byte[] utf8) {
        return (Map<String, Object>) new Json(new String(utf8, java.nio.charset.StandardCharsets.UTF_8)).value();
    }

    /** What hexadecimal digits stand for. */
    static byte[] bytes(String digits) {
        byte[] out = new byte[digits.length() / 2];
        for (int i = 0; i < out.length; i++) {
            out[i] = (byte) Integer.parseInt(digits.substring(2 * i, 2 * i + 2), 16);
        }
        return out;
    }

    /** An array of objects. */
    static List<Map<?, ?>> objects(byte[] utf8) {
        return objects(new Json(new String(utf8, java.nio.charset.StandardCharsets.UTF_8)).value());
    }

    static List<Map<?, ?>> objects(Object array) {
        List<Map<?, ?>> all = new ArrayList<>();
        for (Object o : (List<?>) array) {
            all.add((Map<?, ?>) o);
        }
        return all;
    }

    private char next() {
        while (Character.isWhitespace(text.charAt(at))) {
            at++;
        }
        return text.charAt(at);
    }

    private boolean end(char bracket) {
        if (next() == ',') {
            at++;
        }
        if (next() != bracket) {
            return false;
        }
        at++;
        return true;
    }

    private Object value() {
        switch (next()) {
            case '{':
                at++;
                Map<String, Object> object = new LinkedHashMap<>();
                while (!end('}')) {
                    String name = string();
                    next();
                    at++; // the colon
                    object.put(name, value());
                }
                return object;
            case '[':
                at++;
                List<Object> array = new ArrayList<>();
                while (!end(']')) {
                    array.add(value());
                }
                return array;
            case '"':
                return string();
            default:
                int from = at;
                while (at < text.length() && ",]} \n".indexOf(text.charAt(at)) < 0) {
                    at++;
                }
                return word(text.substring(from, at));
        }
    }

    private static Object word(String word) {
        switch (word) {
            case "null":
                return null;
            case "true":
            case "false":
                return Boolean.valueOf(word);
            default:
                return word.matches("-?[0-9]+") ? (Object) Long.valueOf(word) : (Object) Double.valueOf(word);
        }
    }

    private String string() {
        next();
        at++;
        StringBuilder s = new StringBuilder();
        for (char c = text.charAt(at++); c != '"'; c = text.charAt(at++)) {
            if (c != '\\') {
                s.append(c);
                continue;
            }
            c = text.charAt(at++);
            if (c == 'u') {
                s.append((char) Integer.parseInt(text.substring(at, at + 4), 16));
                at += 4;
            } else {
                int plain = "bfnrt".indexOf(c);
                s.append(plain < 0 ? c : "\b\f\n\r\t".charAt(plain));
            }
        }
        return s.toString();
    }
}
