// Kafka's own authorizer, and its filters of ACLs, as a filter of lines; scripts/kafka_decisions.py talks to it.
//
//   S <super users by ;>                                       other ACLs begin: none, and these super users
//   A <type> <name> <pattern type> <principal> <host> <operation> <permission>     one more ACL
//   Q <user> <host> <operation> <type> <name>                  answered 1 if allowed, else 0
//   T <user> <host> <operation> <type>                         the same for "at least one resource of the type"
//   F <type> <name> <pattern type> <principal> <host> <operation> <permission>     a 1 or 0 for each ACL
//   O <type>                                                   the operations that ACLs of the type may name
//
// The fields are parted by tabs; an empty field of F is null, <empty> an empty text. What is not a question has
// no answer.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class KafkaAuthorizer {
    record Asker(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        static Asker of(String user, String host) throws Exception {
            return new Asker(new KafkaPrincipal("User", user), InetAddress.getByName(host));
        }
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }

    static StandardAuthorizer authorizer(String superUsers) {
        StandardAuthorizer made = new StandardAuthorizer();
        made.configure(Map.of("super.users", superUsers, "node.id", "1"));
        made.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        made.completeInitialLoad();
        return made;
    }

    static AclBinding binding(String[] f) {
        return new AclBinding(
            new ResourcePattern(ResourceType.valueOf(f[1]), f[2], PatternType.valueOf(f[3])),
            new AccessControlEntry(f[4], f[5], AclOperation.valueOf(f[6]), AclPermissionType.valueOf(f[7])));
    }

    static AclBindingFilter filter(String[] f) {
        return new AclBindingFilter(
            new ResourcePatternFilter(ResourceType.valueOf(f[1]), orNull(f[2]), PatternType.valueOf(f[3])),
            new AccessControlEntryFilter(
                orNull(f[4]), orNull(f[5]), AclOperation.valueOf(f[6]), AclPermissionType.valueOf(f[7])));
    }

    static String orNull(String text) { return text.isEmpty() ? null : text.equals("<empty>") ? "" : text; }

    static String digit(boolean yes) { return yes ? "1" : "0"; }

    public static void main(String[] unused) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        StandardAuthorizer authorizer = null;
        List<AclBinding> acls = new ArrayList<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] f = line.split("\t", -1);
            switch (f[0]) {
                case "S" -> {
                    authorizer = authorizer(f[1]);
                    acls.clear();
                }
                case "A" -> {
                    acls.add(binding(f));
                    authorizer.addAcl(Uuid.randomUuid(), StandardAcl.fromAclBinding(binding(f)));
                }
                case "Q" -> {
                    ResourcePattern on = new ResourcePattern(ResourceType.valueOf(f[4]), f[5], PatternType.LITERAL);
                    Action action = new Action(AclOperation.valueOf(f[3]), on, 1, false, false);
                    AuthorizationResult found = authorizer.authorize(Asker.of(f[1], f[2]), List.of(action)).get(0);
                    out.println(digit(found == AuthorizationResult.ALLOWED));
                }
                case "T" -> out.println(digit(authorizer.authorizeByResourceType(
                    Asker.of(f[1], f[2]), AclOperation.valueOf(f[3]), ResourceType.valueOf(f[4]))
                        == AuthorizationResult.ALLOWED));
                case "F" -> {
                    AclBindingFilter filter = filter(f);
                    StringBuilder found = new StringBuilder();
                    acls.forEach(acl -> found.append(digit(filter.matches(acl))));
                    out.println(found);
                }
                case "O" -> out.println(String.join(
                    ",", new TreeSet<>(AclEntry.supportedOperations(ResourceType.valueOf(f[1])).stream()
                        .map(AclOperation::name).toList())));
                default -> throw new IllegalArgumentException(line);
            }
        }
        out.flush();
    }
}
