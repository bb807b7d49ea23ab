from .app import make_app as make_app
from .serving import ConnectionLimits as ConnectionLimits
from .serving import address_of as address_of
from .serving import listen as listen
from .serving import serve as serve
from .serving_app import make_serving_app as make_serving_app
