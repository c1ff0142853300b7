// Guava's own BloomFilter as a judge: `make FUNNEL STRATEGY KEYS OUT` adds keys to a filter for 10 keys at 1 % and writes it, `ask FUNNEL KEYS IN OUT` reads one
// and writes a byte for each key. FUNNEL is byteArray, string, unencodedChars, integer or long; a line of KEYS is a key.

import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnel;
import com.google.common.hash.Funnels;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

public class GuavaJudge {
  @SuppressWarnings("unchecked")
  public static void main(String[] words) throws Exception {
    Funnel<Object> funnel = (Funnel<Object>) (Object) switch (words[1]) {
      case "byteArray" -> Funnels.byteArrayFunnel();
      case "string" -> Funnels.stringFunnel(StandardCharsets.ISO_8859_1);
      case "unencodedChars" -> Funnels.unencodedCharsFunnel();
      case "integer" -> Funnels.integerFunnel();
      default -> Funnels.longFunnel();
    };
    if (words[0].equals("make")) {
      Class<?> strategies = Class.forName("com.google.common.hash.BloomFilterStrategies");
      Method create = null;
      for (Method method : BloomFilter.class.getDeclaredMethods()) {
        if (method.getName().equals("create") && method.getParameterCount() == 4) create = method;
      }
      create.setAccessible(true);
      Object[] all = strategies.getEnumConstants();
      BloomFilter<Object> made = (BloomFilter<Object>) create.invoke(null, funnel, 10L, 0.01, all[words[2].equals("32") ? 0 : 1]);
      for (String key : keys(words[3])) made.put(key(words[1], key));
      try (FileOutputStream out = new FileOutputStream(words[4])) {
        made.writeTo(out);
      }
      return;
    }
    try (FileInputStream in = new FileInputStream(words[3])) {
      BloomFilter<Object> read = BloomFilter.readFrom(in, funnel);
      List<String> keys = keys(words[2]);
      byte[] found = new byte[keys.size()];
      for (int i = 0; i < found.length; i++) found[i] = (byte) (read.mightContain(key(words[1], keys.get(i))) ? 1 : 0);
      Files.write(Path.of(words[4]), found);
    }
  }

  static List<String> keys(String path) throws Exception {
    return Files.readAllLines(Path.of(path), StandardCharsets.UTF_8);
  }

  static Object key(String funnel, String key) {
    return switch (funnel) {
      case "byteArray" -> key.getBytes(StandardCharsets.UTF_8);
      case "integer" -> Integer.valueOf(key);
      case "long" -> Long.valueOf(key);
      default -> key;
    };
  }
}
