"""Takes personal data and secrets out of what is exported: mail addresses, phone and card numbers, IBANs, IP addresses,
keys.

`Masker` puts a token in the place of each value; `register` adds what the built-in patterns do not know.

Not covered: names of people and companies, postal addresses, dates of birth, numbers of accounts other than IBANs, of
passports and identity cards, phone numbers of ten digits or fewer that stand bare, mail addresses with Chinese or
Japanese letters, values that are cut in pieces or encoded twice, and secrets that have neither a known form nor a
name such as `password:` before them. To mask those, add a recognizer of your own, or Presidio
(`flowengine.core.masking.masker`). A pattern is no proof: what must not leave should not be sent.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
