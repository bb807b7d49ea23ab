from .risk_paths import RiskPath as RiskPath
from .risk_paths import RiskPaths as RiskPaths
from .risk_paths import Step as Step
from .risk_paths import find_risk_paths as find_risk_paths
from .risk_paths import place_text as place_text
from .risk_paths import risk_paths_of as risk_paths_of
from .text_flow import may_have_risks as may_have_risks
