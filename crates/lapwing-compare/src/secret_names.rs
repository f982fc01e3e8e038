//! The customary names of secrets: parameters of a query and members of a body.

/// Where a name is that of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePlace {
    /// A parameter of a query.
    Query,
    /// A member of the outermost object of a body, or a field of a form.
    Top,
    /// A member of an object further inside.
    Inside,
}

/// Names whose texts and numbers are secrets wherever they occur, without `-`, `_` and `.`, in lower case.
const EVERYWHERE: &[&str] = &[
    "accesskey",
    "accesskeyid",
    "accesstoken",
    "apikey",
    "apitoken",
    "authenticitytoken",
    "authorization",
    "authtoken",
    "bearertoken",
    "cardnumber",
    "clientsecret",
    "cookie",
    "creditcard",
    "credential",
    "credentials",
    "csrf",
    "csrfmiddlewaretoken",
    "csrftoken",
    "cvc",
    "cvv",
    "hftoken",
    "idtoken",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "proxyauthorization",
    "pwd",
    "refreshtoken",
    "requestverificationtoken",
    "secret",
    "secretaccesskey",
    "secretkey",
    "securitytoken",
    "sessionid",
    "sessiontoken",
    "setcookie",
    "subscriptionkey",
    "xapikey",
    "xcsrftoken",
    "xsrftoken",
];
/// Further names at the top of a body. Inside, as in the tokens of an answer, they are everyday words.
const AT_THE_TOP: &[&str] = &["auth", "jwt", "otp", "pin", "session", "sid", "token"];
/// Further parameters of queries.
const IN_QUERIES: &[&str] = &["assertion", "code", "pass", "samlresponse", "sig", "ticket"];
/// What the name of a secret parameter of a query has in it.
const PARTS_IN_QUERIES: &[&str] =
    &["apikey", "authorization", "credential", "csrf", "jwt", "passw", "secret", "session", "signature", "xsrf"];

/// Whether a member of a document has the name of a secret; `is_top`: of the outermost object.
pub fn names_secret(member: &str, is_top: bool) -> bool {
    is_secret(member, if is_top { NamePlace::Top } else { NamePlace::Inside })
}

/// Whether this is the name of a secret by the rules above.
pub fn is_secret(name: &str, place: NamePlace) -> bool {
    let plain: String = name.chars().filter(|c| !matches!(c, '-' | '_' | '.' | '$')).collect::<String>().to_ascii_lowercase();
    let plain = plain.as_str();
    let is_everywhere = EVERYWHERE.contains(&plain);
    match place {
        NamePlace::Inside => is_everywhere,
        NamePlace::Top => is_everywhere || AT_THE_TOP.contains(&plain),
        // nothing that a model reads is in a query, so that more may be taken for a secret
        NamePlace::Query => {
            is_everywhere
                || AT_THE_TOP.contains(&plain)
                || IN_QUERIES.contains(&plain)
                || plain.ends_with("key")
                || plain.ends_with("token")
                || PARTS_IN_QUERIES.iter().any(|part| plain.contains(part))
        }
    }
}
