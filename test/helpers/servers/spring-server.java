// Spring Authorization Server with its own pages, in memory, for one client. Settings by environment: LIFE, CLIENT_ID,
// CLIENT_SECRET, CALLBACK, PASSWORD. Argument: the port.
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.annotation.Order;
import org.springframework.http.MediaType;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.config.Customizer;
import org.springframework.security.core.userdetails.User;
import org.springframework.security.core.userdetails.UserDetailsService;
import org.springframework.security.crypto.password.PasswordEncoder;
import org.springframework.security.oauth2.core.AuthorizationGrantType;
import org.springframework.security.oauth2.core.ClientAuthenticationMethod;
import org.springframework.security.oauth2.core.DefaultOAuth2AuthenticatedPrincipal;
import org.springframework.security.oauth2.server.authorization.InMemoryOAuth2AuthorizationService;
import org.springframework.security.oauth2.server.authorization.OAuth2Authorization;
import org.springframework.security.oauth2.server.authorization.OAuth2AuthorizationService;
import org.springframework.security.oauth2.server.authorization.OAuth2TokenType;
import org.springframework.security.oauth2.server.authorization.client.InMemoryRegisteredClientRepository;
import org.springframework.security.oauth2.server.authorization.client.RegisteredClient;
import org.springframework.security.oauth2.server.authorization.client.RegisteredClientRepository;
import org.springframework.security.oauth2.server.authorization.settings.AuthorizationServerSettings;
import org.springframework.security.oauth2.server.authorization.settings.ClientSettings;
import org.springframework.security.oauth2.server.authorization.settings.TokenSettings;
import org.springframework.security.oauth2.server.resource.introspection.BadOpaqueTokenException;
import org.springframework.security.oauth2.server.resource.introspection.OpaqueTokenIntrospector;
import org.springframework.security.provisioning.InMemoryUserDetailsManager;
import org.springframework.security.web.SecurityFilterChain;
import org.springframework.security.web.authentication.LoginUrlAuthenticationEntryPoint;
import org.springframework.security.web.util.matcher.MediaTypeRequestMatcher;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RestController;

class Start {
    public static void main(String[] arguments) {
        var application = new SpringApplication(Server.class, Guard.class);
        application.setDefaultProperties(Map.of(
            "server.address", "127.0.0.1", "server.port", arguments[0], "logging.level.root", "warn"));
        application.run();
    }
}

/** Authorizations in memory, which an administrator can end by the name of their user. */
class Grants implements OAuth2AuthorizationService {
    private final InMemoryOAuth2AuthorizationService kept = new InMemoryOAuth2AuthorizationService();
    private final Set<String> ids = ConcurrentHashMap.newKeySet();

    @Override
    public void save(OAuth2Authorization grant) {
        ids.add(grant.getId());
        kept.save(grant);
    }

    @Override
    public void remove(OAuth2Authorization grant) {
        ids.remove(grant.getId());
        kept.remove(grant);
    }

    @Override
    public OAuth2Authorization findById(String id) {
        return kept.findById(id);
    }

    @Override
    public OAuth2Authorization findByToken(String token, OAuth2TokenType type) {
        return kept.findByToken(token, type);
    }

    void endOf(String user) {
        for (var id : ids) {
            var grant = kept.findById(id);
            if (grant != null && grant.getPrincipalName().equals(user)) remove(grant);
        }
    }
}

@RestController
class Guard {
    private final Grants grants;

    Guard(Grants grants) {
        this.grants = grants;
    }

    @GetMapping("/data")
    Map<String, Boolean> data() {
        return Map.of("ok", true);
    }

    @PostMapping("/withdraw/{user}")
    void withdraw(@PathVariable("user") String user) {
        grants.endOf(user);
    }
}

@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
class Server {
    private static String setting(String name) {
        return System.getenv(name);
    }

    @Bean
    Grants grants() {
        return new Grants();
    }

    @Bean
    AuthorizationServerSettings settings() {
        return AuthorizationServerSettings.builder().build();
    }

    @Bean
    RegisteredClientRepository clients() {
        var life = Duration.ofSeconds(Long.parseLong(setting("LIFE")));
        return new InMemoryRegisteredClientRepository(RegisteredClient.withId("1")
            .clientId(setting("CLIENT_ID"))
            .clientSecret(setting("CLIENT_SECRET"))
            .clientAuthenticationMethod(ClientAuthenticationMethod.CLIENT_SECRET_POST)
            .authorizationGrantType(AuthorizationGrantType.AUTHORIZATION_CODE)
            .authorizationGrantType(AuthorizationGrantType.REFRESH_TOKEN)
            .redirectUri(setting("CALLBACK"))
            .scope("read")
            .tokenSettings(TokenSettings.builder().accessTokenTimeToLive(life).build())
            .clientSettings(ClientSettings.builder().requireAuthorizationConsent(true).build())
            .build());
    }

    /** Tests check no hash. */
    @Bean
    PasswordEncoder encoder() {
        return new PasswordEncoder() {
            @Override
            public String encode(CharSequence password) {
                return password.toString();
            }

            @Override
            public boolean matches(CharSequence password, String encoded) {
                return encoded.contentEquals(password);
            }
        };
    }

    @Bean
    UserDetailsService users() {
        var users = new InMemoryUserDetailsManager();
        for (var name : List.of("alice", "bob"))
            users.createUser(User.withUsername(name).password(setting("PASSWORD")).roles("USER").build());
        return users;
    }

    @Bean
    @Order(1)
    SecurityFilterChain authorizationServer(HttpSecurity http) throws Exception {
        http.oauth2AuthorizationServer(server -> http.securityMatcher(server.getEndpointsMatcher()));
        http.authorizeHttpRequests(requests -> requests.anyRequest().authenticated());
        http.exceptionHandling(handling -> handling.defaultAuthenticationEntryPointFor(
            new LoginUrlAuthenticationEntryPoint("/login"), new MediaTypeRequestMatcher(MediaType.TEXT_HTML)));
        return http.build();
    }

    @Bean
    @Order(2)
    SecurityFilterChain guarded(HttpSecurity http, Grants grants) throws Exception {
        OpaqueTokenIntrospector asks = token -> {
            var grant = grants.findByToken(token, OAuth2TokenType.ACCESS_TOKEN);
            if (grant == null || !grant.getAccessToken().isActive())
                throw new BadOpaqueTokenException("Provided token isn't active");
            var name = grant.getPrincipalName();
            return new DefaultOAuth2AuthenticatedPrincipal(name, Map.of("sub", name), List.of());
        };
        http.securityMatcher("/data").authorizeHttpRequests(requests -> requests.anyRequest().authenticated());
        http.oauth2ResourceServer(server -> server.opaqueToken(token -> token.introspector(asks)));
        return http.build();
    }

    @Bean
    @Order(3)
    SecurityFilterChain pages(HttpSecurity http) throws Exception {
        http.csrf(csrf -> csrf.ignoringRequestMatchers("/withdraw/**"));
        http.authorizeHttpRequests(requests ->
            requests.requestMatchers("/withdraw/**").permitAll().anyRequest().authenticated());
        http.formLogin(Customizer.withDefaults());
        return http.build();
    }
}
