//! `[credential.NAME]`: a secret, the hosts that it may go to, and its location in a request.

use crate::fault::{at, nearest};
use crate::file::{CredentialTable, Scalar};
use crate::layer::Layer;
use crate::origin::{At, Position};
use crate::read::Text;
use belljar_spec::egress::{HostPattern, PortRange, RequestFilter};
use belljar_spec::secret::{
    Bodies, Credential, CredentialBinding, CredentialLocation, Inject, SecretName, SecretRef, SecretSource,
    built_in,
};
use belljar_spec::{EnvName, SandboxError};
use std::collections::BTreeMap;
use std::fmt;
use toml::Spanned;

/// The credentials of a file. A repository has none: it could send a secret of the user's to itself.
pub(crate) fn understand(
    text: &Text,
    tables: &BTreeMap<String, Spanned<CredentialTable>>,
) -> Result<Vec<At<Credential>>, SandboxError> {
    let mut credentials = Vec::new();
    for (name, table) in tables {
        let place = text.place(table.span().start);
        if text.layer == Layer::Repository {
            return Err(at(&place, "a repository cannot bind a secret")
                .hint("take the table out here; it belongs in your own belljar.toml, or the operator's"));
        }
        let name: SecretName = name.parse().map_err(|error| at(&place, error))?;
        let reader = Reader { text, place: place.clone(), table: table.get_ref() };
        credentials.push(At { value: reader.credential(name)?, place });
    }
    Ok(credentials)
}

struct Reader<'a> {
    text: &'a Text,
    place: Position,
    table: &'a CredentialTable,
}

impl Reader<'_> {
    fn credential(&self, name: SecretName) -> Result<Credential, SandboxError> {
        let known = built_in(name.as_str()).map(|known| &known.credential);
        let table = self.table;
        let source = match &table.secret {
            Some(written) => self.one(written, |text| text.parse::<SecretRef>())?,
            None => SecretRef::Vault(name.clone()),
        };
        let mut bindings = match (known, self.says_where()) {
            (Some(known), false) => known.bindings.clone(),
            _ => self.bindings(&name, known)?,
        };
        if let Some(written) = &table.inject {
            let inject = self.one(written, |text| match text.as_str() {
                "placeholder" => Ok(Inject::Placeholder),
                "always" => Ok(Inject::Always),
                _ => Err("`inject` is neither `placeholder` nor `always`"),
            })?;
            bindings.iter_mut().for_each(|place| place.inject = inject);
        }
        let variables = match (&table.variables, known) {
            (Some(written), _) => self.all(written, |text| text.parse::<EnvName>())?,
            (None, Some(known)) => known.variables.clone(),
            (None, None) => Vec::new(),
        };
        let bodies = match &table.bodies {
            Some(written) => self.one(written, |text| match text.as_str() {
                "watched" => Ok(Bodies::Watched),
                "open" => Ok(Bodies::Open),
                _ => Err("`bodies` is neither `watched` nor `open`"),
            })?,
            None => known.map_or(Bodies::Watched, |known| known.bodies),
        };
        Ok(Credential { name, source: SecretSource::Stored(source), bindings, variables, bodies })
    }

    /// Is anything set besides the source of the value?
    fn says_where(&self) -> bool {
        let table = self.table;
        let scalars = table.host.is_some() || table.port.is_some() || table.location.is_some();
        let details = table.user.is_some() || table.header.is_some() || table.query.is_some();
        scalars || details || !(table.hosts.is_empty() && table.paths.is_empty() && table.methods.is_empty())
    }

    fn bindings(
        &self,
        name: &SecretName,
        known: Option<&Credential>,
    ) -> Result<Vec<CredentialBinding>, SandboxError> {
        let written = self.table.host.iter().chain(&self.table.hosts);
        let hosts = written
            .map(|host| self.one(host, |text| text.parse::<HostPattern>()))
            .collect::<Result<Vec<_>, _>>()?;
        if hosts.is_empty() {
            let what = format!("the credential `{name}` has no host to go to");
            return Err(at(&self.place, what)
                .hint("write `host = \"=api.example.com\"`: only that host, by TLS, gets the secret"));
        }
        let ports = match &self.table.port {
            Some(port) => self.one(port, |Scalar(port)| port.parse::<PortRange>())?,
            None => PortRange::only(443).map_err(|error| at(&self.place, error))?,
        };
        let requests = RequestFilter {
            methods: self.all(&self.table.methods, |text| text.parse())?,
            paths: self.all(&self.table.paths, |text| text.parse())?,
        };
        let locations = match (self.location()?, known) {
            (Some(location), _) => vec![location],
            (None, Some(known)) => {
                known.bindings.first().map_or_else(Vec::new, |place| place.locations.clone())
            }
            (None, None) => vec![CredentialLocation::Bearer],
        };
        let place = |host| CredentialBinding {
            host,
            ports,
            requests: requests.clone(),
            locations: locations.clone(),
            inject: Inject::Placeholder,
        };
        Ok(hosts.into_iter().map(place).collect())
    }

    /// `as`, and the key that belongs to it; a header or a parameter alone implies it.
    fn location(&self) -> Result<Option<CredentialLocation>, SandboxError> {
        let CredentialTable { location, user, header, query, .. } = self.table;
        let word = location.as_ref().map(|written| written.get_ref().as_str());
        let word = word.or_else(|| {
            let named = [("header", header), ("query", query), ("basic", user)];
            named.into_iter().find_map(|(word, key)| key.as_ref().map(|_| word))
        });
        for (key, written, belongs) in
            [("user", user, "basic"), ("header", header, "header"), ("query", query, "query")]
        {
            if let (Some(written), Some(word)) = (written, word)
                && word != belongs
            {
                let place = self.text.place(written.span().start);
                let what = format!("`{key}` does not go with `as = \"{word}\"`");
                return Err(at(&place, what).hint(format!("write `as = \"{belongs}\"`, or take it out")));
            }
        }
        let needs = |key: &str| {
            let what = format!("a credential in a {key} needs its name");
            at(&self.place, what).hint(format!("write `{key} = \"...\"`"))
        };
        let made = match word {
            None => return Ok(None),
            Some("bearer") => CredentialLocation::Bearer,
            Some("basic") => match user {
                Some(user) => self.one(user, |text| CredentialLocation::basic(text))?,
                None => return Err(needs("user")),
            },
            Some("header") => match header {
                Some(header) => self.one(header, |text| CredentialLocation::header(text))?,
                None => return Err(needs("header")),
            },
            Some("query") => match query {
                Some(query) => self.one(query, |text| CredentialLocation::query(text))?,
                None => return Err(needs("query")),
            },
            Some(other) => {
                let place = location
                    .as_ref()
                    .map_or_else(|| self.place.clone(), |word| self.text.place(word.span().start));
                let fault = at(&place, "`as` is none of bearer, basic, header and query");
                return Err(match nearest(other, &["bearer", "basic", "header", "query"]) {
                    Some(meant) => fault.hint(format!("did you mean `{meant}`?")),
                    None => fault.hint("write `as = \"bearer\"` for `authorization: Bearer ...`"),
                });
            }
        };
        Ok(Some(made))
    }

    fn all<T, E: fmt::Display>(
        &self,
        written: &[Spanned<String>],
        parse: fn(&String) -> Result<T, E>,
    ) -> Result<Vec<T>, SandboxError> {
        written.iter().map(|one| self.one(one, parse)).collect()
    }

    fn one<W, T, E: fmt::Display>(
        &self,
        written: &Spanned<W>,
        parse: impl FnOnce(&W) -> Result<T, E>,
    ) -> Result<T, SandboxError> {
        let place = self.text.place(written.span().start);
        parse(written.get_ref()).map_err(|error| at(&place, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Settings;
    use belljar_spec::ErrorCode;

    fn read(layer: Layer, content: &str) -> Result<Vec<Credential>, SandboxError> {
        let text = Text { layer, name: "belljar.toml".into(), content: content.into() };
        Ok(Settings::understand(&text)?.credentials.into_iter().map(|at| at.value).collect())
    }

    #[test]
    fn a_credential_is_a_secret_and_its_places() {
        let content = "[credential.build]\nsecret = \"env:BUILD_KEY\"\nhosts = [\"=a.example.com\", \"b.example.com\"]\n\
            port = 8443\npaths = [\"/v1/**\"]\nmethods = [\"get\"]\nheader = \"X-Key\"\nvariables = [\"BUILD_KEY\"]\n";
        let read = read(Layer::Operator, content).expect("a credential");
        let [build] = &read[..] else { panic!("{read:?}") };
        assert_eq!(build.source.to_string(), "env:BUILD_KEY");
        assert_eq!(build.bindings.len(), 2);
        assert!(build.bindings[1].is_at(&"x.b.example.com".parse().unwrap(), 8443));
        assert_eq!(build.bindings[0].locations, [CredentialLocation::Header("x-key".into())]);
        assert_eq!(build.bindings[0].requests.methods[0].as_str(), "GET");
        assert_eq!(build.bodies, Bodies::Watched);
    }

    #[test]
    fn a_known_one_can_be_told_where_its_value_is() {
        let content = "[credential.anthropic]\nsecret = \"file:/run/secrets/anthropic\"\n";
        let read = read(Layer::User, content).expect("a credential");
        assert_eq!(read[0].source.to_string(), "file:/run/secrets/anthropic");
        assert_eq!(read[0].bindings, built_in("anthropic").unwrap().credential.bindings);
        assert_eq!(read[0].variables[0].as_str(), "ANTHROPIC_API_KEY");
        assert_eq!(read[0].bodies, Bodies::Open);
    }

    #[test]
    fn a_value_is_added_to_requests_only_where_that_is_said() {
        for (content, expected) in [
            ("[credential.github]\n", Inject::Placeholder),
            ("[credential.github]\ninject = \"always\"\n", Inject::Always),
            ("[credential.x]\nhost = \"=x.example.com\"\n", Inject::Placeholder),
            ("[credential.x]\nhost = \"=x.example.com\"\ninject = \"placeholder\"\n", Inject::Placeholder),
            ("[credential.x]\nhost = \"=x.example.com\"\ninject = \"always\"\n", Inject::Always),
        ] {
            let read = read(Layer::User, content).expect("a credential");
            assert!(read[0].bindings.iter().all(|place| place.inject == expected), "{content}");
        }
    }

    #[test]
    fn a_repository_binds_no_secret() {
        for content in [
            "[credential.anthropic]\n",
            "[credential.x]\nhost = \"evil.example.com\"\nsecret = \"env:HOME\"\n",
        ] {
            let error = read(Layer::Repository, content).expect_err(content);
            assert_eq!(error.message, "belljar.toml:1: a repository cannot bind a secret");
            assert_eq!(error.code, ErrorCode::ConfigInvalid);
        }
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_line_and_the_fix() {
        for (lines, line, says) in [
            ("", 1, "has no host to go to"),
            ("host = \"x.example.com\"\nas = \"barer\"", 3, "`as` is none of"),
            ("host = \"x.example.com\"\nas = \"header\"", 1, "needs its name"),
            ("host = \"x.example.com\"\nas = \"bearer\"\nheader = \"x-key\"", 4, "does not go with"),
            ("host = \"x.example.com\"\nheader = \"host\"", 3, "is not a header that can carry a secret"),
            ("host = \"x.example.com\"\nheader = \"authorization\"", 3, "has a form of its own"),
            ("host = \"1.2.3.4\"", 2, "is an address"),
            ("host = \"x.example.com\"\npaths = [\"v1\"]", 3, "is not a path"),
            ("host = \"x.example.com\"\nsecret = \"sk-ant-0123456789\"", 3, "not a reference to a secret"),
            ("host = \"x.example.com\"\nbodies = \"shut\"", 3, "neither `watched` nor `open`"),
            ("host = \"x.example.com\"\ninject = \"sometimes\"", 3, "neither `placeholder` nor `always`"),
            ("host = \"x.example.com\"\nport = 0", 3, "is not a port"),
            ("hst = \"x.example.com\"", 2, "there is no key `hst`"),
        ] {
            let error = read(Layer::User, &format!("[credential.x]\n{lines}\n")).expect_err(lines);
            assert!(error.message.starts_with(&format!("belljar.toml:{line}: ")), "{lines}: {error}");
            assert!(error.message.contains(says), "{lines}: {error}");
            assert!(!error.message.contains("0123456789"), "{error}");
        }
    }
}
