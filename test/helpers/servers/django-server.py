# django-oauth-toolkit with its own views, on SQLite, for one client. Settings by environment: FOLDER, LIFE, CLIENT_ID,
# CLIENT_SECRET, CALLBACK, PASSWORD. Argument: the port.
import os
import sys

import django
from django.conf import settings

PROVIDER = {
    'ACCESS_TOKEN_EXPIRE_SECONDS': int(os.environ['LIFE']),
}
settings.configure(
    SECRET_KEY='x' * 50,
    ALLOWED_HOSTS=['*'],
    ROOT_URLCONF=__name__,
    USE_TZ=True,
    DATABASES={
        'default': {
            'ENGINE': 'django.db.backends.sqlite3',
            'NAME': os.environ['FOLDER'] + '/db.sqlite',
            # Without it two refreshes at once read, then both want to write: SQLite refuses one at once, with a 500.
            'OPTIONS': {'timeout': 20, 'transaction_mode': 'IMMEDIATE'},
        }
    },
    INSTALLED_APPS=[
        'django.contrib.admin', 'django.contrib.auth', 'django.contrib.contenttypes', 'django.contrib.sessions',
        'django.contrib.messages', 'oauth2_provider',
    ],
    MIDDLEWARE=[
        'django.contrib.sessions.middleware.SessionMiddleware', 'django.middleware.common.CommonMiddleware',
        'django.middleware.csrf.CsrfViewMiddleware', 'django.contrib.auth.middleware.AuthenticationMiddleware',
        'django.contrib.messages.middleware.MessageMiddleware',
    ],
    TEMPLATES=[{
        'BACKEND': 'django.template.backends.django.DjangoTemplates',
        'APP_DIRS': True,
        'OPTIONS': {'context_processors': [
            'django.template.context_processors.request', 'django.contrib.auth.context_processors.auth',
            'django.contrib.messages.context_processors.messages',
        ]},
    }],
    DEFAULT_AUTO_FIELD='django.db.models.AutoField',
    LOGIN_URL='/admin/login/',
    OAUTH2_PROVIDER=PROVIDER,
)
django.setup()

from django.contrib import admin  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import JsonResponse  # noqa: E402
from django.urls import include, path  # noqa: E402
from oauth2_provider.models import Application  # noqa: E402
from oauth2_provider.views.generic import ProtectedResourceView  # noqa: E402


class Data(ProtectedResourceView):
    def get(self, request):
        return JsonResponse({'ok': True})


urlpatterns = [
    path('admin/', admin.site.urls),
    path('o/', include('oauth2_provider.urls', namespace='oauth2_provider')),
    path('data', Data.as_view()),
]

call_command('migrate', verbosity=0)
for name in ('alice', 'bob'):
    if not User.objects.filter(username=name).exists():
        User.objects.create_superuser(name, name + '@example.com', os.environ['PASSWORD'])
if not Application.objects.exists():
    Application.objects.create(
        name='the bff', client_id=os.environ['CLIENT_ID'], client_secret=os.environ['CLIENT_SECRET'],
        client_type='confidential', authorization_grant_type='authorization-code', redirect_uris=os.environ['CALLBACK'],
    )
server = ThreadedWSGIServer(('127.0.0.1', int(sys.argv[1])), WSGIRequestHandler)
server.set_app(get_wsgi_application())
server.serve_forever()
